from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sparewatt.cli.bids import news_of
from sparewatt.protocol.api.lease_match import LeaseMatch
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.leasing.relay.auction import PROVIDERS, VOTE_KEYS
from tests.unit.leasing.relay.test_match_reply import (
    AUCTION,
    ID,
    NOTHING,
    UNMATCHED,
    accepted_by_chain,
    collected,
    shown,
)

ROUTE = f"GET /v1/leases/{ID}/match"
MATCHED = shown(AUCTION.state(*accepted_by_chain()), collected().evidence)
UNSEEN = shown(AUCTION.state(*accepted_by_chain()), None)
AGAIN = f"{ROUTE}?attempt=0&have={UNSEEN.version}&wait_ms=500"
NOBODY = shown(AUCTION.state(UNMATCHED), collected(**NOTHING).evidence)


def body(match: LeaseMatch) -> Any:
    return msgspec.to_builtins(match)


def test_a_match_is_told_line_by_line_with_its_scores(network: FakeNetwork, run: Run) -> None:
    network.on(ROUTE, body(MATCHED))
    result = run("bids", "watch", ID)
    assert result.exit_code == 0
    assert f"{PROVIDERS[1]} at $1.50 an hour: won" in result.stdout
    assert f"{PROVIDERS[2]} declines: BUSY" in result.stdout
    assert f"{PROVIDERS[1]} has it, for $2.00 an hour; 4 validators signed." in result.stdout
    assert "P(OK)" in result.stdout


def test_nobody_is_exit_code_five_with_the_reasons(network: FakeNetwork, run: Run) -> None:
    network.on(ROUTE, body(NOBODY))
    result = run("bids", "watch", ID)
    assert result.exit_code == 5
    assert "0 bids because 1 provider has too little GPU memory." in result.stdout
    assert "vram_gb 8 would admit 1 more." in result.stdout


def test_json_is_one_line_per_change(network: FakeNetwork, run: Run) -> None:
    network.on(ROUTE, body(MATCHED))
    result = run("bids", "watch", ID, "--json")
    lines = result.stdout.splitlines()
    assert [json.loads(line) for line in lines] == [json.loads(json.dumps(body(MATCHED)))]


def test_an_attempt_can_be_chosen(network: FakeNetwork, run: Run) -> None:
    network.on(f"{ROUTE}?attempt=0", body(MATCHED))
    network.on(ROUTE, body(MATCHED))
    assert run("bids", "watch", ID, "--attempt", "0").exit_code == 0
    assert "attempt=0" in network.requests[0].path


def test_an_error_of_the_network_is_told(network: FakeNetwork, run: Run) -> None:
    network.fail(ROUTE, 409, "no_chain", "This network has no chain.")
    result = run("bids", "watch", ID)
    assert result.exit_code != 0
    assert "no chain" in result.stderr


def test_an_auction_is_watched_through_a_restart_of_the_gateway(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.on(ROUTE, body(UNSEEN))
    network.lose(AGAIN)
    monkeypatch.setattr("sparewatt.cli.bids.time.sleep", lambda _: network.on(AGAIN, body(MATCHED)))
    result = run("bids", "watch", ID)
    assert (result.exit_code, result.stderr.count("asking again")) == (0, 1)
    network.lose(ROUTE)
    assert "asking again" not in run("bids", "watch", ID).stderr, "a gateway that never answered is not waited for"


def test_bids_that_come_after_the_certificate_are_waited_for(network: FakeNetwork, run: Run) -> None:
    assert (UNSEEN.phase.name, UNSEEN.bids) == ("matched", [])
    network.on(ROUTE, body(UNSEEN))
    network.on(AGAIN, body(msgspec.structs.replace(MATCHED, version=UNSEEN.version + 1)))
    result = run("bids", "watch", ID)
    assert result.exit_code == 0
    assert f"{PROVIDERS[1]} at $1.50 an hour: won" in result.stdout
    assert "has not seen" not in result.stderr


def test_bids_that_the_gateway_never_collected_are_named_as_such(network: FakeNetwork, run: Run) -> None:
    network.on(ROUTE, body(UNSEEN))
    network.on(AGAIN, body(UNSEEN))
    result = run("bids", "watch", ID)
    assert result.exit_code == 0
    assert "The certificate counts 2 bids that this gateway has not seen." in result.stderr
    assert f"sparewatt validator replay {ID} --attempt 0 --from URL" in result.stderr
    assert len(network.requests) <= 6


def test_only_what_is_new_is_told() -> None:
    open_ = shown(AUCTION.state(), collected(certificate=None, phase="vote").evidence)
    first, again = news_of(None, open_), news_of(open_, open_)
    assert first[0].startswith(f"Order {ID}, attempt 0: at most $3.00")
    assert first[1].startswith("vote: validators vote")
    assert again == []
    later = news_of(open_, MATCHED)
    assert later[0] == "matched: the chain has the certificate"
    assert any(line.endswith(": won") for line in later)
    assert not any("declines" in line for line in later), "that was told"


@pytest.mark.parametrize("problem", ["it cannot be reached"])
def test_a_validator_s_trouble_is_told_under_its_name(problem: str) -> None:
    book = collected(certificate=None, phase="vote")
    before = shown(AUCTION.state(), book.evidence)
    book.note_problem(VOTE_KEYS[0].address, problem)
    assert news_of(before, shown(AUCTION.state(), book.evidence)) == [f"  validator {VOTE_KEYS[0].address}: {problem}"]
