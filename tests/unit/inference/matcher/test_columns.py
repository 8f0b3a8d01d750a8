from __future__ import annotations

import numpy as np

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.columns import CAPACITY_FIRST, DYNAMIC, LOAD, RECORD, SPECS, ColumnField, NodeColumns
from tests.unit.inference.nodes import node_id


def some_entries(count: int) -> NodeColumns:
    entries = NodeColumns()
    for number in range(count):
        place = entries.add(node_id(number), number + 100, number + 200)
        for write, group in ((entries.write_dynamic, DYNAMIC), (entries.write_specs, SPECS)):
            write(place, (float(number),) * (group.stop - group.start))
    return entries


def numbers(entries: NodeColumns) -> dict[str, set[float]]:
    """Every number of a node comes from its own: a place that is mixed up shows."""
    found: dict[str, set[float]] = {}
    for place, node in enumerate(entries.nodes):
        columns = set(entries.by_field[:, place].tolist())
        found[node] = columns | {float(entries.hashes[place]) - 100, float(entries.rows[place]) - 200}
    return found


def expected(*left: int) -> dict[str, set[float]]:
    return {node_id(number): {float(number)} for number in left}


def test_the_three_groups_of_columns_are_all_of_them() -> None:
    assert (LOAD.start, LOAD.stop, RECORD.stop, SPECS.stop) == (0, RECORD.start, SPECS.start, len(ColumnField))
    assert [field.value for field in ColumnField] == list(range(len(ColumnField)))


def test_a_new_model_has_no_nodes() -> None:
    assert len(NodeColumns()) == 0
    assert NodeColumns().by_field.shape == (len(ColumnField), 0)


def test_growing_keeps_every_number_with_its_node() -> None:
    count = 4 * CAPACITY_FIRST + 1
    assert numbers(some_entries(count)) == expected(*range(count))


def test_the_last_moves_into_the_hole_and_says_so() -> None:
    entries = some_entries(4)
    assert entries.remove(1) == node_id(3)
    assert entries.nodes == [node_id(0), node_id(3), node_id(2)]
    assert numbers(entries) == expected(0, 2, 3)


def test_removing_the_last_moves_nobody() -> None:
    entries = some_entries(3)
    assert entries.remove(2) is None
    assert numbers(entries) == expected(0, 1)
    assert entries.remove(1) is None
    assert entries.remove(0) is None
    assert len(entries) == 0


def test_columns_follow_every_write_however_late_they_are_read() -> None:
    entries = some_entries(3)
    assert entries.by_field[ColumnField.RTT_S].tolist() == [0.0, 1.0, 2.0]
    entries.write_dynamic(1, (9.0,) * (DYNAMIC.stop - DYNAMIC.start))
    entries.write_column(ColumnField.JOBS, np.array([4.0, 5.0, 6.0]))
    assert entries.by_field[ColumnField.RTT_S].tolist() == [0.0, 9.0, 2.0]
    assert (
        entries.by_field[ColumnField.JOBS].tolist() == entries.by_node[:3, ColumnField.JOBS].tolist() == [4.0, 5.0, 6.0]
    )
    entries.remove(0)
    assert entries.by_field[ColumnField.RTT_S].tolist() == [2.0, 9.0]


def test_an_id_keeps_all_its_bits() -> None:
    entries = NodeColumns()
    entries.add(NodeId("0x" + "ab" * 8 + "cd" * 8 + "ef" * 4), 1, 0)
    assert [hex(word) for word in entries.ids[0].tolist()] == ["0x" + "ab" * 8, "0x" + "cd" * 8, "0x" + "ef" * 4]
