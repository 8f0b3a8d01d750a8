"""The commands of a lease that runs: what they send, what they say, what they ask before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.cli.leases.lease_replies import MATCHED, a_market_lease, an_order, details

REQUEST = {"id": "r", "kind": "pause", "state": "done", "reason": None, "tx": "0x1"}
MONEY: dict[str, Any] = {
    "as_of": 1_000,
    "hourly_usd": "0.5",
    "spent_usd": "1.7",
    "left_usd": "0.3",
    "deposited_usd": "2",
    "compensated_usd": "0",
    "runway_s": 2_160,
    "runs_until": 3_160,
    "limit": "deposit",
    "paused_s": 120,
    "grace_ends_at": None,
    "warning": "deposit_low",
    "next_step": "'sparewatt lease top-up 0123456789abcdef USD' adds to the deposit.",
}
RUNNING = MATCHED | {
    "order": an_order(state="matched", lease=a_market_lease(state="active")),
    "money": MONEY,
    "max_spend_usd": "3",
}
PLAN = {"hourly_usd": "0.5", "duration_s": 9_000, "ends_at": 10_000, "cost_usd": "1.25", "top_up_usd": "0.95"}
UPDATED = {"plan": PLAN, "update": None, "top_up": None, "accepted": False, "lease": RUNNING}


def sent(network: FakeNetwork) -> list[Any]:
    return [request.body for request in network.requests if request.method == "POST"]


def scaled(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "name": "train",
        "done": False,
        "kept": [RUNNING],
        "ended": [],
        "ordered": [],
        "to_order": 0,
        "deposit_usd": "0",
    }
    return usual | changes


@pytest.mark.parametrize("act", ["pause", "resume", "reopen"])
def test_an_act_is_sent_under_an_id(network: FakeNetwork, run: Run, act: str) -> None:
    network.on(f"POST /v1/leases/train/{act}", {"request": REQUEST, "lease": RUNNING})
    assert run("lease", act, "train").exit_code == 0
    assert run("lease", act, "train", "--id", "mine").exit_code == 0
    first, second = sent(network)
    assert (len(first["id"]), second) == (16, {"id": "mine"})


def test_a_top_up_sends_its_amount_and_the_cap_only_if_it_is_raised(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/train/top-up", {"request": REQUEST, "lease": RUNNING})
    run("lease", "top-up", "train", "2.50", "--id", "a")
    run("lease", "top-up", "train", "2.50", "--max-spend", "9", "--id", "b")
    assert sent(network) == [{"id": "a", "usd": "2.50"}, {"id": "b", "usd": "2.50", "max_spend": "9"}]


def test_an_extension_shows_its_cost_before_it_is_sent(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/train/extend", UPDATED | {"accepted": True})
    result = run("lease", "extend", "train", "2h", "--yes")
    assert ("$1.25 at most" in result.stdout, "has accepted" in result.stderr) == (True, True)
    planned, made = sent(network)
    assert (planned["dry_run"], planned["duration"], "dry_run" in made) == (True, "2h", False)


def test_a_dry_run_sends_nothing_else(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/train/update", UPDATED)
    assert run("lease", "update", "train", "--hourly", "0.7", "--dry-run").exit_code == 0
    assert [body["dry_run"] for body in sent(network)] == [True]


def test_a_change_that_is_not_accepted_yet_says_so(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/train/update", UPDATED)
    assert "not accepted it yet" in run("lease", "update", "train", "--duration", "30m", "--yes").stderr


def test_an_update_of_nothing_is_a_wrong_use(network: FakeNetwork, run: Run) -> None:
    assert (run("lease", "update", "train").exit_code, sent(network)) == (2, [])


def test_a_scale_says_which_ones_end_before_it_is_sent(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/train/scale", scaled(ended=[RUNNING | {"id": "newest"}]))
    result = run("lease", "scale", "train", "--count", "1", "--yes")
    assert "These end: newest" in result.stdout
    assert [body["dry_run"] for body in sent(network)] == [True, False]


def test_a_list_shows_runway_and_warning(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/leases", {"object": "list", "data": [RUNNING], "next": None})
    result = run("lease", "list")
    assert "36 min, 80 % spent" in result.stdout
    assert "WARNING 0123456789abcdef: 'sparewatt lease top-up" in result.stderr


def test_an_empty_lease_shows_its_grace_and_what_to_do(network: FakeNetwork, run: Run) -> None:
    empty = MONEY | {"warning": "deposit_empty", "runs_until": None, "grace_ends_at": 1_600, "hourly_usd": "0"}
    network.on("GET /v1/leases/train", details(RUNNING | {"money": empty}))
    shown = run("lease", "show", "train").stdout
    assert ("empty, 10 min of grace" in shown, "lease top-up" in shown) == (True, True)


def test_an_ended_lease_says_who_why_and_what_came_back(network: FakeNetwork, run: Run) -> None:
    ending = {
        "reason": "PROVIDER_RECLAIM",
        "who": "provider",
        "why": "the provider took its machine back after its notice",
        "at": 5,
        "paid_usd": "1.7",
        "refunded_usd": "0.3",
        "compensation_usd": "0.1",
    }
    network.on("GET /v1/leases/train", details(RUNNING | {"phase": "closed", "ending": ending}))
    shown = " ".join(run("lease", "show", "train").stdout.split())
    assert "by the provider: the provider took its machine back after its notice (PROVIDER_RECLAIM)" in shown
    assert "paid $1.7, refunded $0.3, compensation from providers' bonds $0.1" in shown


UPTIME: dict[str, Any] = {
    "as_of": 1_000,
    "percent": "99.20",
    "running_s": 7_140,
    "down_s": 58,
    "paused_s": 300,
    "waiting_s": 0,
    "outages": 1,
}


def test_uptime_says_what_counts_and_what_does_not(network: FakeNetwork, run: Run) -> None:
    lease = RUNNING | {"uptime": UPTIME}
    network.on("GET /v1/leases/train", details(lease))
    network.on("GET /v1/leases", {"data": [lease]})
    shown = run("lease", "show", "train").stdout
    assert "99.20 %: ran 1.983 h, was down 58 s in 1 outage, not counted: 5 min paused" in " ".join(shown.split())
    assert "99.20 %" in run("lease", "list").stdout


def test_a_credit_is_shown_under_the_uptime(network: FakeNetwork, run: Run) -> None:
    credit = {"state": "credited", "usd": "0.05", "text": "credited $0.05 for 99.20 %", "at": 1.0}
    network.on("GET /v1/leases/train", details(RUNNING | {"uptime": UPTIME | {"credit": credit}}))
    assert "credited $0.05 for 99.20 %" in run("lease", "show", "train").stdout


def test_a_lease_that_has_not_started_shows_no_uptime(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/leases/train", details(RUNNING))
    assert "Uptime" not in run("lease", "show", "train").stdout


def test_a_lease_says_that_it_waits_for_its_secrets(network: FakeNetwork, run: Run) -> None:
    waiting = details(RUNNING | {"secrets": ["A", "B"]}) | {"missing_secrets": ["B"]}
    network.on("GET /v1/leases/train", waiting)
    assert "it waits for B" in run("lease", "show", "train").stdout


def test_events_are_shown_in_words(network: FakeNetwork, run: Run) -> None:
    event = {
        "at": 5,
        "kind": "closed",
        "who": "renter",
        "text": "closed: the renter closed it",
        "reason": "RENTER",
        "provider": None,
        "hourly_usd": None,
        "duration_s": None,
        "amount_usd": None,
        "paid_usd": "1",
        "refunded_usd": "2",
        "compensation_usd": "0",
        "tx": "0x1",
    }
    network.on("GET /v1/leases/train/events", {"object": "list", "data": [event]})
    shown = run("lease", "events", "train").stdout
    assert "closed: the renter closed it (RENTER): paid $1, refunded $2" in " ".join(shown.split())
    assert json.loads(run("lease", "events", "train", "--json").stdout)["data"][0]["reason"] == "RENTER"


def test_a_secret_in_plain_is_refused_before_anything_is_asked(network: FakeNetwork, run: Run) -> None:
    result = run("lease", "secrets", "train", "--secret", "A=hunter2")
    assert (result.exit_code, network.requests) == (2, [])
    assert "hunter2" not in result.stderr


def test_a_secret_of_no_proven_candidate_is_not_sent(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparewatt.cli.leases.sealing.RECORD_WAIT_S", 0.0)
    monkeypatch.setenv("A", "hunter2")
    network.on("GET /v1/leases/train", details(RUNNING | {"secrets": ["A"]}))
    wanted = {
        "names": ["A"],
        "missing": ["A"],
        "attempt": 0,
        "candidates": ["0x" + "cd" * 20],
        "chain_id": 31_337,
        "deployment_order": "0x" + "ab" * 20,
    }
    network.on("GET /v1/leases/0123456789abcdef/secrets", wanted)
    network.on("GET /v1/market/validators", {"object": "list", "data": [], "snapshot": None})
    result = run("lease", "secrets", "train")
    assert (result.exit_code, sent(network)) == (1, [])
    assert "were not sent" in result.stderr
    asked = {request.path for request in network.requests}
    assert not any(path.endswith("/match/record") for path in asked), "the gateway's own record proves nothing"
