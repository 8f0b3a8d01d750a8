"""The commands about money: what they ask for, what they print, and how they end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.cli.money.credits import format_time_left
from sparewatt.cli.node.earnings import NodeTime, electricity_costs
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

CREDITS = {
    "total_credits": 3,
    "total_usage": 0.00003,
    "balance_usd": "2.99997",
    "promo_usd": "0.99998",
    "promo_expires_at": None,
    "paid_usd": "1.99999",
    "reserved_usd": "0.25",
}
MOVED = {"id": "x", "account": "acc_ann", "posted": True, "credits": CREDITS}
SUMMARY = {
    "fee_bps": 500,
    "pending_usd": "0.5",
    "batched_usd": "0.25",
    "settled_usd": "1",
    "claimed_usd": "1",
    "promo_usd": "0.125",
    "treasury": {"balance_usd": "10", "daily_budget_usd": "2"},
    "nodes": [{"node_id": "0x" + "11" * 20, "name": "berlin", "busy_s": 7200.0, "utilisation": 0.5, "slots": 4}],
}
LINE = {
    "job_id": "match_1",
    "opened_at": "2026-11-15T09:00:00+00:00",
    "node_id": "0x" + "11" * 20,
    "model": "small",
    "prompt_tokens": 100,
    "completion_tokens": 200,
    "prompt_usd_per_mtok": "0.02",
    "completion_usd_per_mtok": "0.04",
    "fee_usd": "0.0000005",
    "net_usd": "0.0000095",
    "net_promo_usd": "0",
}
DAY = {
    "name": "2026-11-15",
    "jobs": 2,
    "prompt_tokens": 10,
    "completion_tokens": 20,
    "cost_usd": "0.5",
    "cost_nano": 500_000_000,
    "promo_usd": "0",
    "promo_nano": 0,
}
EMPTY: dict[str, Any] = {"object": "list", "data": [], "next": None}


def page(*lines: object) -> dict[str, Any]:
    return {"object": "list", "data": list(lines), "next": None}


# credits


def test_the_balance_is_exact(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/credits", {"data": CREDITS})
    result = run("credits")
    assert result.exit_code == 0
    for said in ("$2.99997", "$0.99998 (spent first)", "$1.99999", "$0.25"):
        assert said in result.stdout


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (30 * 86_400, "in 30 days"),
        (48 * 3600, "in 2 days"),
        (47 * 3600 + 5, "in 47 hours"),
        (3600, "in 1 hour"),
        (3599, "within the hour"),
        (-5, "within the hour"),
    ],
)
def test_what_expires_soon_is_told_in_hours(seconds: float, said: str) -> None:
    assert format_time_left(seconds) == said


def test_an_empty_balance_names_what_to_do(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/credits", {"data": {}})
    assert "sparewatt credits deposit" in run("credits", "balance").stderr


def test_a_grant_sends_what_was_said(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/credits/grant", MOVED, status=201)
    result = run("credits", "grant", "ann@example.com", "5", "--days", "7", "--id", "welcome")
    assert result.exit_code == 0
    assert network.seen[0].body == {
        "usd": "5",
        "id": "welcome",
        "account": "ann@example.com",
        "days": 7.0,
        "memo": None,
    }
    assert "Granted $5.00. acc_ann now has $3.00." in result.stdout


def test_a_deposit_that_was_done_before_says_so(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/credits/deposit", MOVED | {"posted": False})
    assert "nothing changed" in run("credits", "deposit", "5", "--id", "x").stdout


def test_a_negative_amount_is_refused_by_the_network_in_words(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/credits/deposit", 400, "invalid_amount", "'-1' is not an amount in dollars.")
    result = run("credits", "deposit", "-1")
    assert result.exit_code == 1
    assert "not an amount" in result.stderr
    assert network.seen[0].body == {"usd": "-1", "adapter": "test"}


def test_who_may_not_grant_is_told_which_scope_it_takes(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/credits/grant", 403, "permission_denied")
    result = run("credits", "grant", "acc_ann", "1")
    assert result.exit_code == 3
    assert "'admin'" in result.stderr


# usage


def test_usage_is_summed(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/usage?by=day&limit=1000", page(DAY, DAY | {"name": "2026-11-16"}))
    lines = run("usage").stdout.splitlines()
    assert lines[-1].split() == ["total", "4", "20", "40", "$1.00", "$0"]


def test_no_usage_names_the_next_command(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/usage?by=model&limit=1000", EMPTY)
    result = run("usage", "--by", "model")
    assert result.stdout == ""
    assert "sparewatt chat" in result.stderr


def test_csv_has_its_header_once_over_many_pages(network: FakeNetwork, run: Run) -> None:
    first = "GET /v1/usage?by=day&from=2026-11-01&format=csv&limit=1000"
    network.on(first, pieces=[b"name,jobs\r\na,1\r\n"], headers={"x-sparewatt-next": "a"})
    network.on(f"{first}&after=a", pieces=[b"name,jobs\r\nb,2\r\n"])
    assert run("usage", "--from", "2026-11-01", "--csv").stdout.split() == ["name,jobs", "a,1", "b,2"]


# earnings


def test_earnings_show_price_fee_and_net_of_each_job(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/summary", {"data": SUMMARY})
    network.on("GET /v1/earnings?by=job&limit=1000", page(LINE))
    result = run("node", "earnings", "--by", "job")
    assert result.exit_code == 0, result.stderr
    for said in ("Pending  $0.50", "Promo    $0.125", "match_1", "$0.04", "$0.0000095", "berlin", "2.0 h", "50.0%"):
        assert said in result.stdout
    assert "node why" in result.stderr


def test_without_earnings_the_next_command_is_why(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/summary", {"data": SUMMARY | {"nodes": []}})
    network.on("GET /v1/earnings?by=day&limit=1000", EMPTY)
    assert "sparewatt node why" in run("node", "earnings").stderr


def test_net_of_electricity_is_what_is_left_after_the_bill(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/earnings/summary", {"data": SUMMARY})
    network.on("GET /v1/earnings?by=day&limit=1000", page(LINE | {"name": "2026-11-15", "jobs": 1}))
    network.on("GET /v1/earnings?by=node&limit=1000", page({"name": "0x" + "11" * 20, "net_nano": 500_000_000}))
    result = run("node", "earnings", "--kwh-usd", "0.30", "--watts", "350", "--json")
    (node,) = json.loads(result.stdout)["electricity"]
    assert node == {
        "node_id": "0x" + "11" * 20,
        "watts": 350.0,
        "watts_measured": False,
        "kwh": 0.7,
        "cost_usd": "0.21",
        "earned_usd": "0.5",
        "net_usd": "0.29",
    }


def test_power_that_a_node_measured_counts_before_what_its_owner_says() -> None:
    nodes = [NodeTime("0x1", 3_600.0, 1.0, working_watts=200.0), NodeTime("0x2", 3_600.0, 1.0)]
    by_node = [{"name": each.node_id, "net_nano": 10} for each in nodes]
    measured, given = electricity_costs(nodes, by_node, watts=400, kwh_usd=0.5)
    assert (measured.kwh, measured.is_measured, given.kwh, given.is_measured) == (0.2, True, 0.4, False)
    assert [each.node_id for each in electricity_costs(nodes, by_node, watts=None, kwh_usd=0.5)] == ["0x1"]


def test_a_node_that_costs_more_than_it_earns_is_shown_with_a_loss() -> None:
    (found,) = electricity_costs(
        [NodeTime("0x1", 3_600.0, 1.0)], [{"name": "0x1", "net_nano": 10}], watts=1_000, kwh_usd=0.5
    )
    assert (found.kwh, found.cost_nano, found.net_nano) == (1.0, 500_000_000, -499_999_990)


@pytest.mark.parametrize("bad", [("--watts", "-1"), ("--kwh-usd", "-0.1"), ("--watts", "much")])
def test_power_that_makes_no_sense_is_a_usage_error(network: FakeNetwork, run: Run, bad: tuple[str, str]) -> None:
    assert run("node", "earnings", *bad).exit_code == 2
    assert network.seen == []


# payouts, treasury, ledger

ADDRESSES = [f"0x{digit * 40}" for digit in "abc"]


def batch(root: bytes, **changes: object) -> dict[str, Any]:
    leaves = [{"address": address, "earned_micro": 5, "spent_micro": 1} for address in ADDRESSES]
    given: dict[str, Any] = {
        "epoch": 3,
        "created_at": 1.0,
        "root": "0x" + root.hex(),
        "leaves": 3,
        "promised_micro": 15,
        "promised_usd": "0.000015",
        "added_usd": "0.000015",
        "state": "ready",
        "data": leaves,
        "next": None,
    }
    return given | changes


RIGHT = settlement_tree([PayoutEntry(address, 5, 1) for address in ADDRESSES]).root


def test_a_batch_whose_leaves_make_its_root_holds(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/payouts/batches/3?limit=1000", batch(RIGHT))
    result = run("payouts", "verify", "3")
    assert result.exit_code == 0
    assert "holds" in result.stdout


@pytest.mark.parametrize(
    ("root", "changes"), [(bytes(32), {}), (RIGHT, {"promised_micro": 14}), (RIGHT, {"leaves": 4})]
)
def test_a_batch_that_does_not_hold_is_a_failure(
    network: FakeNetwork, run: Run, root: bytes, changes: dict[str, object]
) -> None:
    network.on("GET /v1/payouts/batches/3?limit=1000", batch(root, **changes))
    result = run("payouts", "verify", "3")
    assert result.exit_code == 1
    assert "evidence" in result.stderr


CLAIMED = {
    "address": "0x" + "a" * 40,
    "epoch": 3,
    "amount_usd": "0.25",
    "state": "claimed",
    "reason": None,
    "tx": "0xfe",
}
REFUSED = CLAIMED | {"state": "failed", "reason": "the contract says NOT_IN_ROOT.", "tx": None}


def claims(*lines: object, waiting_micro: int = 0) -> dict[str, Any]:
    return page(*lines) | {"claimed_usd": "1", "waiting_usd": "0.5", "waiting_micro": waiting_micro}


def test_a_claim_tells_what_went_where(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/payouts/claim", claims(CLAIMED))
    result = run("payouts", "claim")
    assert result.exit_code == 0
    assert f"Claimed $0.25 to {CLAIMED['address']} (0xfe)." in result.stdout


def test_a_claim_that_the_contract_refused_is_an_error_beside_those_that_worked(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/payouts/claim?account=acc_ann", claims(CLAIMED, REFUSED))
    result = run("payouts", "claim", "--account", "acc_ann")
    assert result.exit_code == 1
    assert "Claimed $0.25" in result.stdout
    assert "NOT_IN_ROOT" in result.stderr


@pytest.mark.parametrize(("waiting_micro", "said"), [(500_000, True), (0, False)])
def test_with_nothing_to_claim_it_says_what_waits(
    network: FakeNetwork, run: Run, waiting_micro: int, *, said: bool
) -> None:
    network.on("POST /v1/payouts/claim", claims(waiting_micro=waiting_micro))
    result = run("payouts", "claim")
    assert result.exit_code == 0
    assert "$1.00 were claimed so far" in result.stderr
    assert ("wait for their batch" in result.stderr) is said


def test_without_payouts_the_next_command_is_earnings(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/payouts?limit=1000", EMPTY)
    assert "sparewatt node earnings" in run("payouts").stderr


def test_an_empty_treasury_names_who_can_fill_it(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/treasury", {"data": {}})
    assert "sparewatt treasury fund" in run("treasury").stderr


AUDIT = {
    "in_order": True,
    "sum_nano": 0,
    "unbalanced_causes": 0,
    "open_clearing_accounts": 0,
    "wrong_balances": 0,
    "overdrawn": 0,
}


def test_books_in_order_end_with_zero(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/ledger/audit", AUDIT)
    result = run("ledger", "audit")
    assert result.exit_code == 0
    assert "in order" in result.stdout


def test_books_that_are_not_end_with_one_also_as_json(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/ledger/audit", AUDIT | {"in_order": False, "wrong_balances": 2})
    for words in (("ledger", "audit"), ("ledger", "audit", "--json")):
        result = run(*words)
        assert result.exit_code == 1
        assert "rebuild" in result.stderr
