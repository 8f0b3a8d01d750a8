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
