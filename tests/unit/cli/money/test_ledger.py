from __future__ import annotations

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

AUDIT = {
    "in_order": True,
    "sum_nano": 0,
    "unbalanced_causes": 0,
    "open_clearing_accounts": 0,
    "wrong_balances": 0,
    "overdrawn": 0,
}
CHAIN = {
    "in_order": True,
    "block": 42,
    "addresses": 3,
    "differences": [],
    "pool_micro": 5,
    "uncovered_nano": 0,
    "shortfall_nano": 0,
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


def test_the_comparison_with_the_chain_is_shown(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/ledger/audit", AUDIT | {"chain": CHAIN})
    assert "agrees at block 42, 3 addresses" in run("ledger", "audit").stdout


def test_a_difference_names_account_and_pocket(network: FakeNetwork, run: Run) -> None:
    difference = {"account": "acc_ann", "pocket": "escrow", "id": "0x11", "books_micro": 7, "chain_micro": 6}
    chain = CHAIN | {"in_order": False, "differences": [difference]}
    network.on("GET /v1/ledger/audit", AUDIT | {"in_order": False, "chain": chain})
    result = run("ledger", "audit")
    assert result.exit_code == 1
    assert "escrow of acc_ann" in result.stdout
    assert "0x11: the books say 7, the chain 6 micro-dollars" in result.stdout


def test_without_an_answer_of_the_chain_that_is_said(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/ledger/audit", AUDIT | {"chain_note": "The books were not compared with the chain."})
    assert "not compared" in run("ledger", "audit").stderr


FUND = {
    "balance_usd": "9.9",
    "balance_nano": 9_900_000_000,
    "daily_limit_usd": "10",
    "daily_limit_nano": 10_000_000_000,
    "credited_today_usd": "0.1",
    "credited_today_nano": 100_000_000,
    "waiting_usd": "0.25",
    "waiting_nano": 250_000_000,
    "waiting_leases": 2,
    "goal_percent": "99.9",
}
CREDIT = {
    "lease": "783c8cdbba1ee7fe",
    "order": "0x01",
    "account": "acc_ann",
    "percent": "99.20",
    "due_usd": "0.1",
    "credited_usd": "0.1",
    "credited_at": 1.0,
    "ended_at": 1.0,
    "reason": None,
}


def test_the_uptime_fund_shows_limit_today_and_what_waits(network: FakeNetwork, run: Run) -> None:
    waits = CREDIT | {"credited_usd": None, "lease": "waits"}
    own = CREDIT | {"credited_usd": None, "reason": "own_provider", "due_usd": "0"}
    network.on("GET /v1/ledger/uptime", {"fund": FUND, "data": [CREDIT, waits, own]})
    shown = " ".join(run("ledger", "uptime").stdout.split())
    for words in ("99.9 %", "at most $10", "$0.10 credited so far", "$0.25 of 2 leases", "99.20 %", "one account"):
        assert words in shown


def test_a_network_without_a_limit_or_an_empty_fund_says_what_to_do(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/ledger/uptime", {"fund": FUND | {"daily_limit_nano": 0}, "data": []})
    assert "uptime_credit_daily_usd" in run("ledger", "uptime").stderr
    network.on("GET /v1/ledger/uptime", {"fund": FUND | {"balance_nano": 0}, "data": []})
    assert "ledger fund-uptime" in run("ledger", "uptime").stderr


def test_funding_is_sent_under_an_id(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/ledger/uptime/fund", {"id": "nov", "posted": True, "fund": FUND}, status=201)
    assert "Funded." in run("ledger", "fund-uptime", "5", "--id", "nov").stderr
    assert network.requests[-1].body == {"usd": "5", "id": "nov"}
