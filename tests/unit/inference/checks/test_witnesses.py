"""Who can be held against whom, and who is asked."""

from __future__ import annotations

import msgspec

from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.rng import seeded
from sparewatt.inference.checks.records import CheckRecords
from sparewatt.inference.checks.witnesses import Witnesses, are_comparable
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.trust.checks.standing import TRUSTED_PASSES, CheckRecord, CheckState
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs

OWN = AccountId("acc_operator")
NAME = ModelId(MODEL)


def network(**owners: str) -> tuple[NodeTable, dict[str, NodeRow]]:
    table, rows = NodeTable(), {}
    for number, (name, owner) in enumerate(owners.items(), start=1):
        table.connect(node_id(number), some_specs(name=name, models=(a_model(),)), now_s=NOW_S)
        table.set_owner(node_id(number), AccountId(owner))
        row = table.get(node_id(number))
        assert row is not None
        rows[name] = row
    return table, rows


def picked(table: NodeTable, row: NodeRow, records: CheckRecords | None = None, *, count: int = 3) -> list[str]:
    witnesses = Witnesses(table, records or CheckRecords(frozenset({OWN})), seeded(1))
    return [each.specs.name for each in witnesses.pick(row, NAME, count=count)]


def test_witnesses_are_of_different_owners_and_none_of_the_nodes_own() -> None:
    table, rows = network(a="ada", b="ada", c="ben", d="ben", e="cleo")
    found = picked(table, rows["a"])
    assert len(found) == 2
    assert not {"a", "b"} & set(found)


def test_nodes_that_the_operator_vouches_for_count_one_by_one_and_come_first() -> None:
    table, rows = network(a="ada", own1=OWN, own2=OWN, b="ben")
    assert set(picked(table, rows["a"], count=2)) == {"own1", "own2"}


def test_a_node_with_many_passes_is_asked_before_strangers() -> None:
    table, rows = network(a="ada", b="ben", c="cleo", d="dan")
    records = CheckRecords()
    records.set(rows["c"].id, CheckRecord(CheckState.PASSING, passed=TRUSTED_PASSES))
    assert picked(table, rows["a"], records, count=1) == ["c"]


def test_suspended_nodes_and_those_that_are_away_witness_nothing() -> None:
    table, rows = network(a="ada", b="ben", c="cleo")
    table.set_suspended(rows["b"].id, is_suspended=True)
    table.disconnect(rows["c"].id, unix_s=0.0)
    assert picked(table, rows["a"]) == []


def test_only_nodes_that_the_requests_policy_allows_are_asked() -> None:
    class Only:
        def admits(self, node_id: NodeId) -> bool:
            return node_id == rows["c"].id

    table, rows = network(a="ada", b="ben", c="cleo")
    witnesses = Witnesses(table, CheckRecords(), seeded(1))
    assert [each.id for each in witnesses.pick(rows["a"], NAME, count=3, allowed=Only())] == [rows["c"].id]


def test_another_quantization_server_or_digest_of_weights_is_not_comparable() -> None:
    table, rows = network(a="ada", b="ben")
    one = rows["a"]

    def report(**more: object) -> bool:
        specs = msgspec.structs.replace(rows["b"].specs, models=(msgspec.structs.replace(a_model(), **more),))
        table.set_specs(rows["b"].id, specs)
        return are_comparable(one, rows["b"], NAME)

    assert report()
    assert not report(quantization="Q2_K")
    assert report(weights_digest="sha256:1"), "one that says nothing of its weights can still be compared"
    table.set_specs(one.id, msgspec.structs.replace(one.specs, models=(a_model(weights_digest="sha256:2"),)))
    assert not report(weights_digest="sha256:1")
    specs = msgspec.structs.replace(rows["b"].specs, backend="another", models=(a_model(weights_digest="sha256:2"),))
    table.set_specs(rows["b"].id, specs)
    assert not are_comparable(one, rows["b"], NAME)
