"""`sparewatt validator replay` for somebody who runs no validator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.market.match.record import write_record
from sparewatt.market.match.replay import replay
from sparewatt.protocol.api.market import MarketValidator, MarketValidatorList, ValidatorVotes
from sparewatt.protocol.api.validators import attempts_path, record_path
from tests.market_network.by_hand import USD, HandMatch
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork, running

MATCH = HandMatch.of({0: 2 * USD, 1: USD})
ID = "0x" + MATCH.cast.context.order_id.hex()
ATTEMPT = MATCH.cast.context.attempt


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No validator was started here."""
    monkeypatch.chdir(tmp_path)


def listing(*urls: str) -> dict[str, Any]:
    """What the gateway says of the validators."""
    rows = [
        MarketValidator(
            id=f"0x{number:040x}",
            vote_key=f"0x{number:040x}",
            url=url,
            weight_usd="1",
            stake_usd="1",
            pending_usd="0",
            unbonding_usd="0",
            slashed_usd="0",
            jailed=False,
            certificates=0,
            votes=0,
            last_vote_at=None,
            recent=ValidatorVotes(),
        )
        for number, url in enumerate(urls)
    ]
    listed = MarketValidatorList(
        stake_version=1, total_usd="1", snapshot=None, data=rows, latest_block=1, final_block=1
    )
    found: dict[str, Any] = msgspec.to_builtins(listed)
    return found


def test_the_validators_that_the_network_lists_are_asked_and_compared(network: FakeNetwork, run: Run) -> None:
    own = network.base_url.removesuffix("/v1")
    network.on("GET /v1/market/validators", listing(own, "http://127.0.0.1:1", "ftp://odd", ""))
    network.on(f"GET {attempts_path(ID)}", {"order_id": ID, "attempts": [ATTEMPT]})
    network.on(f"GET {record_path(ID, ATTEMPT)}", write_record(MATCH.record()))
    result = run("validator", "replay", ID, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["task_hash"] == "0x" + replay(MATCH.record()).task_hash.hex()
    assert document["sources"] == [own]
    shown = run("validator", "replay", ID)
    assert "Without http://127.0.0.1:1" in shown.stderr


def test_a_result_that_does_not_follow_is_exit_code_1(network: FakeNetwork, run: Run) -> None:
    book = MATCH.book()
    task = MATCH.task(book)
    swapped = replace(task, first=task.second, second=task.first)
    told = MATCH.record(
        proposals=(MATCH.proposal(0, book, swapped),), votes=tuple(MATCH.vote(i, swapped) for i in range(3))
    )
    with running() as other:
        other.on(f"GET {record_path(ID, ATTEMPT)}", write_record(told))
        url = other.base_url.removesuffix("/v1")
        result = run("validator", "replay", ID, "--attempt", str(ATTEMPT), "--from", url)
    assert result.exit_code == 1
    assert network.requests == []


@pytest.mark.parametrize("words", [["replay", "0x12", "--from", "x"], ["challenge", "0x12"]])
def test_what_is_no_order_is_refused(network: FakeNetwork, run: Run, words: list[str]) -> None:
    result = run("validator", *words)
    assert (result.exit_code, network.requests) == (2, [])
    assert "64 hex digits" in result.stderr
