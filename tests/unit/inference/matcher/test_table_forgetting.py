"""Nodes that are forgotten: nothing of them is left in the table, and their places are used again."""

from __future__ import annotations

from sparewatt.core.ids import AccountId, ModelId
from sparewatt.inference.matcher.table import NodeTable
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, a_table, node_id, some_specs

LENDER = AccountId("acc_lender")


def away(count: int) -> NodeTable:
    table = a_table(count)
    for number in range(1, count + 1):
        table.set_owner(node_id(number), LENDER)
        table.disconnect(node_id(number), unix_s=5.0)
    return table


def test_a_forgotten_node_is_in_no_list() -> None:
    table = away(2)
    assert table.forget(node_id(1))
    columns = table.columns_of(MODEL)
    assert columns is not None
    assert (len(table), columns.nodes, table.nodes_of(LENDER)) == (1, [node_id(2)], {node_id(2)})
    assert table.forget(node_id(2))
    assert (len(table), table.has_model(MODEL), table.nodes_of(LENDER), table._by_owner) == (0, False, (), {})


def test_a_node_that_is_here_works_or_is_unknown_is_not_forgotten() -> None:
    table = a_table(1)
    held = table.reserve(node_id(1), a_job(), now_s=NOW_S)
    assert not table.forget(node_id(1))
    table.disconnect(node_id(1), unix_s=5.0)
    assert not table.forget(node_id(1))
    table.release(held, now_s=NOW_S)
    assert table.forget(node_id(1))
    assert not table.forget(node_id(1))


def test_places_of_forgotten_nodes_are_used_again_and_counts_stay_right() -> None:
    table = away(3)
    table.forget(node_id(2))
    table.connect(node_id(8), some_specs(slots=2), now_s=NOW_S)
    table.connect(node_id(9), some_specs(slots=2), now_s=NOW_S)
    indexes = [row.index for row in table]
    assert sorted(indexes) == [0, 1, 2, 3]
    assert (table.capacity.nodes(MODEL), table.capacity.free(MODEL)) == (2, 8)


def test_nodes_that_come_with_ever_new_models_and_are_forgotten_leave_nothing() -> None:
    table = a_table(1)
    for number in range(2, 50):
        name = f"made-up-{number}"
        table.connect(node_id(number), some_specs(a_model(id=name)), now_s=NOW_S)
        table.set_owner(node_id(number), AccountId(f"acc_{number}"))
        table.note_success(node_id(number), model=ModelId(name), output_tokens=10)
        table.disconnect(node_id(number), unix_s=5.0)
        table.forget(node_id(number))
    for each in (table._rows, table._columns, table._prefix_cachers, table._shortlists, table._typical_output):
        assert len(each) <= 1
    assert (table._by_owner, len(table.capacity._nodes), len(table.capacity._counted)) == ({}, 1, 2)


def test_a_remembered_node_has_served_if_it_did_before() -> None:
    table = NodeTable()
    table.remember(node_id(1), some_specs(), last_seen_unix_s=5.0, has_served=True)
    table.remember(node_id(2), some_specs(), last_seen_unix_s=5.0)
    assert [row.has_served for row in table] == [True, False]
    table.note_success(node_id(2), model=MODEL, output_tokens=None)
    assert all(row.has_served for row in table)


def test_of_models_that_a_node_no_longer_has_only_failures_are_remembered() -> None:
    names = [ModelId(f"model-{number}") for number in range(5)]
    table = NodeTable()
    table.connect(node_id(1), some_specs(*(a_model(id=name) for name in names)), now_s=NOW_S)
    table.note_failure(node_id(1), model=names[1], now_s=NOW_S)
    running = table.reserve(node_id(1), a_job(model=names[2]), now_s=NOW_S)
    table.set_specs(node_id(1), some_specs(a_model(id=names[0])))
    row = table.get(node_id(1))
    assert row is not None
    assert set(row.breakers) == {names[0], names[1], names[2]}, "what it has, has failed, and is working on"
    table.release(running, now_s=NOW_S)
