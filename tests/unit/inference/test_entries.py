from __future__ import annotations

from sparewatt.inference.matcher.entries import FIRST_PLACES, FIXED, LIVE, Entries, Field
from tests.unit.inference.nodes import node_id


def some_entries(count: int) -> Entries:
    entries = Entries()
    for number in range(count):
        place = entries.add(node_id(number), number + 100, number + 200)
        entries.write_live(place, tuple(float(number) for _ in range(LIVE.stop - LIVE.start)))
        entries.write_fixed(place, tuple(float(number) for _ in range(FIXED.stop - FIXED.start)))
    return entries


def numbers(entries: Entries) -> dict[str, set[float]]:
    """Every number of a node comes from its own: a place that is mixed up shows."""
    found: dict[str, set[float]] = {}
    for place, node in enumerate(entries.nodes):
        columns = set(entries.data[:, place].tolist())
        found[node] = columns | {float(entries.hashes[place]) - 100, float(entries.rows[place]) - 200}
    return found


def expected(*left: int) -> dict[str, set[float]]:
    return {node_id(number): {float(number)} for number in left}


def test_the_two_groups_of_columns_are_all_of_them() -> None:
    assert (LIVE.start, LIVE.stop, FIXED.stop) == (0, FIXED.start, len(Field))
    assert [field.value for field in Field] == list(range(len(Field)))


def test_a_new_model_has_no_nodes() -> None:
    assert len(Entries()) == 0
    assert Entries().data.shape == (len(Field), 0)


def test_growing_keeps_every_number_with_its_node() -> None:
    count = 4 * FIRST_PLACES + 1
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
