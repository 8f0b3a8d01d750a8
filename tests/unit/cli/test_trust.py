"""`sparewatt trust`: an era that holds is said to, any lie in it is a failure, and cheating is simulated."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from tests.unit.cli.conftest import Run
from tests.unit.cli.eras import published_era
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.trust.rewards.eras import a_node, an_era, payee

ERA = an_era(a_node(1), a_node(2))


def test_an_era_whose_inputs_give_its_root_holds(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/rewards/eras/1", published_era(ERA))
    result = run("trust", "replay", "1")
    assert result.exit_code == 0
    assert "Era 1 holds" in result.stdout


def test_a_later_era_stands_on_the_leaves_of_the_batch_before(network: FakeNetwork, run: Run) -> None:
    before = [PayoutEntry(payee(1), 500, 0), PayoutEntry(payee(9), 7, 0)]
    network.on("GET /v1/rewards/eras/1", published_era(ERA, epoch=4, before=before))
    leaves = [{"address": each.account, "earned_micro": each.earned, "spent_micro": each.spent} for each in before]
    batch: dict[str, Any] = {
        "epoch": 3,
        "created_at": 1.0,
        "root": "0x" + settlement_tree(before).root.hex(),
        "leaves": 2,
        "promised_micro": 507,
        "promised_usd": "0.000507",
        "added_micro": 507,
        "added_usd": "0.000507",
        "state": "posted",
        "posted_at": 1.0,
        "posted_tx": None,
        "data": leaves,
        "next": None,
    }
    network.on("GET /v1/payouts/batches/3?limit=1000&pool=rewards", batch)
    assert run("trust", "replay", "1").exit_code == 0
    network.on("GET /v1/payouts/batches/3?limit=1000&pool=rewards", batch | {"data": leaves[:1]})
    result = run("trust", "replay", "1")
    assert result.exit_code == 1
    assert "root differ" in result.stderr


def lied(**changes: Any) -> dict[str, Any]:
    return published_era(ERA) | changes


LIES = {
    "root": lied(root="0x" + "9" * 64),
    "inputs": lied(inputs_hash="0x" + "9" * 64),
    "amounts": lied(rewards=published_era(an_era(a_node(1)))["rewards"]),
    "another document": lied(inputs=msgspec.to_builtins(an_era(a_node(1), a_node(2, failed=9)))),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_a_lie_in_what_was_published_is_a_failure_and_evidence(network: FakeNetwork, run: Run, lie: str) -> None:
    network.on("GET /v1/rewards/eras/1", LIES[lie])
    result = run("trust", "replay", "1")
    assert result.exit_code == 1
    assert "does not hold" in result.stderr
    assert "evidence" in result.stderr


def test_an_empty_era_holds_without_a_root(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/rewards/eras/1", published_era(an_era(a_node(1, up_s=0))))
    result = run("trust", "replay", "1", "--json")
    assert json.loads(result.stdout)["verified"] is True
    assert json.loads(result.stdout)["root"] is None


def test_cheating_under_many_identities_is_a_table_by_share(run: Run) -> None:
    rows = json.loads(run("trust", "sybil", "--identities", "50", "--json").stdout)
    assert [row["garbage_share"] for row in rows] == [1.0, 0.75, 0.5, 0.25, 0.1]
    assert rows[0]["gain_micro"] < 0
    assert "FORFEITED" in run("trust", "sybil", "--identities", "5").stdout
