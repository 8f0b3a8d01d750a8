from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.cli.leases.lease_replies import (
    MATCHED,
    NOBODY,
    ORDER_ID,
    OTHER_PROVIDER,
    PROVIDER,
    UNMATCHED,
    a_bid,
    a_lease,
    a_match,
    a_quote,
    created,
    details,
)

LEASE = "GET /v1/leases/0123456789abcdef"
MATCH = f"GET /v1/leases/{ORDER_ID}/match"
CREATE = ("lease", "create", "--image", "me/train:1")


def answer(network: FakeNetwork, lease: dict[str, Any], *, quote: dict[str, Any] | None = None) -> None:
    network.on("POST /v1/leases/dry-run", quote or a_quote())
    network.on("POST /v1/leases", created(a_lease(phase="sending", order_id=None, order=None)), status=201)
    network.on(LEASE, details(lease))
    network.on(MATCH, a_match("matched"))


def sent(network: FakeNetwork, path: str = "/v1/leases") -> list[Any]:
    return [request.body for request in network.requests if request.method == "POST" and request.path == path]


def test_an_order_is_followed_to_its_provider(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    result = run(*CREATE)
    for words in ("Order sent", f"order {ORDER_ID}", "Lookup sent to 3 nodes", "2 bids, 1 declined", PROVIDER, "$1.00"):
        assert words in result.stdout
    assert "starts the container" in result.stderr
    assert "lease close 0123456789abcdef" in result.stderr
    assert result.exit_code == 0


def test_what_is_held_is_shown_before_it_is_sent_and_is_what_is_sent(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    result = run(*CREATE)
    assert "$1.00 an hour (1.25 times the dearest offer that fits)" in result.stdout
    assert "$2.00, held from your credits" in result.stdout
    assert "$0.60 an hour and GPU: RunPod" in result.stdout
    assert "https://prices.example" in result.stdout
    (body,) = sent(network)
    assert body["policy"] == {"max_hourly": "1"}
    assert len(body["id"]) == 16


def test_an_order_that_nobody_serves_ends_with_its_reasons(network: FakeNetwork, run: Run) -> None:
    answer(network, UNMATCHED)
    network.on(MATCH, a_match("unmatched", why="0 bids because 3 nodes declined: BUSY."))
    result = run(*CREATE)
    assert "0 bids because 3 nodes declined" in result.stdout
    assert "the deposit comes back" in result.stderr
    assert result.exit_code == 5


def test_an_order_that_the_chain_refuses_is_a_failure(network: FakeNetwork, run: Run) -> None:
    answer(network, a_lease(phase="failed", order_id=None, order=None, problem="the contract says NO_SNAPSHOT."))
    result = run(*CREATE)
    assert "Not sent: the contract says NO_SNAPSHOT." in result.stdout
    assert result.exit_code == 1


def test_a_dry_run_sends_nothing(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    result = run(*CREATE, "--dry-run")
    assert (result.exit_code, sent(network)) == (0, [])
    assert "attic" in result.stdout


@pytest.mark.parametrize("flag", [["--dry-run"], [], ["--anyway"]])
def test_if_nobody_could_serve_it_nothing_is_sent(network: FakeNetwork, run: Run, flag: list[str]) -> None:
    answer(network, MATCHED, quote=NOBODY)
    result = run(*CREATE, *flag)
    assert (result.exit_code, sent(network)) == (5, [])
    assert "None of 5 active providers" in result.stdout
    assert "region" in result.stdout
    assert "It would help: max_hourly 0.1→0.4 adds 1 node" in result.stdout


def test_with_a_price_it_may_be_sent_anyway(network: FakeNetwork, run: Run) -> None:
    priced = NOBODY | {"max_hourly_usd": "1", "max_hourly_source": "policy", "deposit_usd": "2", "total_usd": "2"}
    answer(network, UNMATCHED, quote=priced | {"covers_s": 7_200})
    assert run(*CREATE, "--anyway").exit_code == 5
    assert len(sent(network)) == 1


def test_providers_are_chosen_by_their_numbers(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    result = run(*CREATE, "--choose", stdin="2\n")
    assert result.exit_code == 0
    assert sent(network)[0]["policy"]["only"] == [OTHER_PROVIDER]
    assert sent(network, "/v1/leases/dry-run")[1]["policy"] == {"only": [OTHER_PROVIDER]}


@pytest.mark.parametrize("text", ["3", "0", "x", "1 2 3 4 5 6 7 8 9"])
def test_a_number_that_is_no_offer_is_refused(network: FakeNetwork, run: Run, text: str) -> None:
    answer(network, MATCHED)
    assert run(*CREATE, "--choose", stdin=f"{text}\n").exit_code == 2
    assert sent(network) == []


def test_a_choice_does_not_mix_with_json(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    result = run(*CREATE, "--choose", "--json", stdin="1\n")
    assert json.loads(result.stdout)["leases"][0]["phase"] == "matched"
    assert "Standing offers" in result.stderr


def test_json_prints_the_end_only(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    result = run(*CREATE, "--json")
    assert json.loads(result.stdout)["leases"][0]["order"]["lease"]["provider"] == PROVIDER
    assert json.loads(run(*CREATE, "--dry-run", "--json").stdout)["able"] == 2


def test_it_need_not_be_followed(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    result = run(*CREATE, "--no-wait", "--id", "mine")
    assert (result.exit_code, sent(network)[0]["id"]) == (0, "mine")
    assert "0123456789abcdef" in result.stdout
    assert not [request for request in network.requests if request.method == "GET"]


def test_a_gateway_that_shows_no_matches_is_enough(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    network.fail(MATCH, 404, "not_found")
    assert "Matched with" in run(*CREATE).stdout


def test_an_error_names_the_line_of_the_file(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    network.on(
        "POST /v1/leases/dry-run",
        {"error": {"message": "'count' is a whole number.", "type": "t", "param": "count", "code": "invalid_value"}},
        status=400,
    )
    file = tmp_path / "gpu.yaml"
    file.write_text("image: a\ncount: -3\n")
    result = run("lease", "create", "-f", str(file))
    assert (result.exit_code, "gpu.yaml:2: 'count'" in result.stderr) == (2, True)


def test_a_bad_order_is_a_wrong_use_also_without_a_file(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/leases/dry-run", 400, "unsupported_parameter", "An order on chain cannot hold 'sort'.")
    assert run(*CREATE, "--policy", "sort=price").exit_code == 2
    network.fail("POST /v1/leases/dry-run", 402, "insufficient_credits")
    assert run(*CREATE).exit_code == 1


def test_an_interrupted_order_goes_on_and_says_how_to_end_it(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    answer(network, a_lease())
    monkeypatch.setattr("sparewatt.cli.leases.ordering.time.sleep", interrupt)
    result = run(*CREATE)
    assert result.exit_code == 130
    assert "sparewatt lease follow 0123456789abcdef" in result.stderr
    assert "lease cancel 0123456789abcdef" in result.stderr


def lose_first(network: FakeNetwork, route: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway takes the request and is killed before it answers; later it is up again."""
    answer_later, pauses = network.answers[route], [0]

    def pause(_: float) -> None:
        pauses[0] += 1
        if pauses[0] >= times:
            network.answers[route] = answer_later

    network.lose(route)
    monkeypatch.setattr("sparewatt.cli.leases.ordering.time.sleep", pause)


def test_an_order_whose_answer_was_lost_is_sent_again_under_the_same_id(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(network, MATCHED)
    again = created(a_lease(phase="sending", order_id=None, order=None)) | {"created": False}
    network.on("POST /v1/leases", again)
    lose_first(network, "POST /v1/leases", 3, monkeypatch)
    result = run(*CREATE)
    assert result.exit_code == 0
    assert "Order sent: 0123456789abcdef" in result.stdout
    assert "made once" in result.stderr
    ids = [body["id"] for body in sent(network)]
    assert len(ids) == 4
    assert len(set(ids)) == 1


def test_an_order_of_which_nothing_is_heard_says_how_to_ask_again(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(network, MATCHED)
    network.lose("POST /v1/leases")
    monkeypatch.setattr("sparewatt.cli.leases.ordering.RESEND_S", -1.0)
    result = run(*CREATE)
    (body,) = sent(network)
    assert result.exit_code == 1
    assert "not known whether the order was taken" in result.stderr
    assert f"--id {body['id']} --max-hourly 1 orders it once" in result.stderr


def test_an_order_that_is_interrupted_while_it_is_sent_names_its_id(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    answer(network, MATCHED)
    network.lose("POST /v1/leases")
    monkeypatch.setattr("sparewatt.cli.leases.ordering.time.sleep", interrupt)
    result = run(*CREATE)
    assert result.exit_code == 130
    assert "may have been sent. 'sparewatt lease list' shows" in result.stderr
    assert f"--id {sent(network)[0]['id']}" in result.stderr


def test_an_order_is_followed_through_a_restart_of_the_gateway(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(network, MATCHED)
    lose_first(network, LEASE, 2, monkeypatch)
    result = run(*CREATE)
    assert (result.exit_code, "Matched with" in result.stdout) == (0, True)
    assert result.stderr.count("asking again") == 1


def test_a_bid_above_the_standing_offer_is_pointed_out(network: FakeNetwork, run: Run) -> None:
    """The cheapest lie to be chosen: a low offer, and a bid up to the highest price."""
    answer(network, MATCHED)
    network.on(MATCH, a_match("matched", bids=[a_bid(price_usd="0.9")]))
    result = run(*CREATE)
    assert f"{PROVIDER} offered this for $0.40 an hour and bid $0.90" in result.stderr
    network.on(MATCH, a_match("matched", bids=[a_bid(), a_bid(OTHER_PROVIDER, state="standby", price_usd="0.9")]))
    assert "offered this for" not in run(*CREATE).stderr


def test_several_leases_end_with_one_remark(network: FakeNetwork, run: Run) -> None:
    other = MATCHED | {"id": "other"}
    answer(network, MATCHED)
    network.on("POST /v1/leases", created(a_lease(), a_lease() | {"id": "other"}), status=201)
    network.on("GET /v1/leases/other", details(other))
    result = run(*CREATE, "--count", "2")
    assert result.stderr.count("starts the container") == 1
    assert "lease close train --all" in result.stderr


def test_leases_are_listed(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/leases", {"object": "list", "data": [MATCHED, UNMATCHED], "next": None})
    shown = run("lease").stdout
    assert "matched, lease pending" in shown
    assert "unmatched (NONE_ELIGIBLE)" in shown
    assert run("lease", "list", "--quiet").stdout.split() == ["0123456789abcdef"] * 2
    network.on("GET /v1/leases", {"object": "list", "data": [], "next": None})
    assert "lease create --help" in run("lease", "list").stderr


def test_a_lease_that_is_paid_and_does_not_run_is_a_warning_in_the_list_too(network: FakeNetwork, run: Run) -> None:
    program = {
        "phase": "pulling",
        "since": 1_800_000_000,
        "trouble": "12 of 900 MB",
        "exit_code": None,
        "restarts": 0,
        "confirmed_running": False,
        "warning": "You pay for it, and it does not run.",
    }
    network.on("GET /v1/leases/train", details(MATCHED | {"program": program}))
    shown = run("lease", "show", "train").stdout
    assert "pulling since 2027-01-15 08:00:00 UTC: 12 of 900 MB" in shown
    assert "You pay for it, and it does not run." in shown
    network.on("GET /v1/leases", {"object": "list", "data": [MATCHED | {"program": program}], "next": None})
    assert f"WARNING {MATCHED['id']}: You pay for it" in run("lease", "list").stderr
    quiet = program | {"phase": "running", "trouble": None, "warning": None, "restarts": 2}
    network.on("GET /v1/leases/train", details(MATCHED | {"program": quiet}))
    shown = run("lease", "show", "train").stdout
    assert ("started again 2 times" in shown, "WARNING" in shown) == (True, False)


def test_one_lease_is_shown(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/leases/train", details(MATCHED | {"secrets": ["HF_TOKEN"]}))
    shown = run("lease", "show", "train").stdout
    for words in (ORDER_ID, PROVIDER, "1 GPUs, 1 CPUs, 2 GB memory", "2 h", "HF_TOKEN (names only"):
        assert words in shown


def test_an_order_that_found_nobody_says_why_also_later(network: FakeNetwork, run: Run) -> None:
    ended = UNMATCHED | {"phase": "expired"}
    network.on("GET /v1/leases/train", details(ended))
    network.on(MATCH, a_match("over", why="0 bids because 3 providers were busy."))
    shown = run("lease", "show", "train").stdout
    assert "0 bids because 3 providers were busy." in shown
    assert "none yet" not in shown
    network.fail(MATCH, 404, "not_found")
    assert run("lease", "show", "train").exit_code == 0


def test_all_of_one_name_are_ended_that_can_be(network: FakeNetwork, run: Run) -> None:
    ended = MATCHED | {"id": "ended", "phase": "closed"}
    listed = [MATCHED, MATCHED | {"id": "b"}, ended, UNMATCHED | {"id": "c"}, MATCHED | {"id": "d", "name": "other"}]
    network.on("GET /v1/leases", {"object": "list", "data": listed, "next": None})
    request = {"id": "r", "kind": "close", "state": "done", "reason": None, "tx": "0x1"}
    for each in ("0123456789abcdef", "b"):
        network.on(f"POST /v1/leases/{each}/close", {"request": request, "lease": MATCHED | {"id": each}})
    result = run("lease", "close", "train", "--all", "--id", "x")
    assert result.exit_code == 0
    assert sent(network, "/v1/leases/b/close") == [{"id": "x-b"}]
    assert len([request for request in network.requests if request.method == "POST"]) == 2
    assert run("lease", "close", "nothing", "--all").exit_code == 4


def test_an_order_is_followed_later(network: FakeNetwork, run: Run) -> None:
    answer(network, MATCHED)
    network.on("GET /v1/leases/train", details(MATCHED))
    assert "Matched with" in run("lease", "follow", "train").stdout


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({}, "$2.00 of $2.00 left"),
        ({"deposit_usd": "1.5", "charged_usd": "0.5"}, "$1.50 of $2.00 left; it has cost $0.50 so far"),
        (
            {"deposit_usd": "0", "charged_usd": "0.00025", "refunded_usd": "1.99975"},
            "$2, of which it cost $0.00025; $1.99975 came back to you",
        ),
    ],
)
def test_a_lease_shows_what_it_cost_and_what_came_back(
    network: FakeNetwork, run: Run, order: dict[str, Any], said: str
) -> None:
    network.on(LEASE, details(MATCHED | {"order": MATCHED["order"] | order}))
    assert said in " ".join(run("lease", "show", "0123456789abcdef").stdout.split())


@pytest.mark.parametrize(("act", "said"), [("close", "Closed."), ("cancel", "Cancelled.")])
def test_a_lease_is_ended(network: FakeNetwork, run: Run, act: str, said: str) -> None:
    request = {"id": "r", "kind": act, "state": "done", "reason": None, "tx": "0x1"}
    network.on(f"POST /v1/leases/train/{act}", {"request": request, "lease": MATCHED})
    result = run("lease", act, "train", "--id", "once")
    assert (sent(network, f"/v1/leases/train/{act}"), result.exit_code) == ([{"id": "once"}], 0)
    assert said in result.stderr


def test_somebody_elses_lease_is_not_found(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/leases/theirs", 404, "lease_not_found")
    result = run("lease", "show", "theirs")
    assert (result.exit_code, "sparewatt lease list" in result.stderr) == (4, True)
