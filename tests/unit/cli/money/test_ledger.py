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
