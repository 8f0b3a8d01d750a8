"""The count of free places is what a walk over all rows would find, whatever happens to the nodes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparewatt.core.ids import ModelId
from sparewatt.inference.matcher.capacity import free_slots
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import NodeLoad
from tests.trying import walks
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, a_table, node_id, some_specs

OTHER = ModelId("other")


def told(table: NodeTable) -> list[set[str]]:
    heard: list[set[str]] = []

    def hear(models: Iterable[str]) -> None:
        heard.append(set(models))

    table.capacity.subscribe(hear)
    return heard


def test_a_node_has_its_slots_and_as_many_places_behind_them() -> None:
    table = a_table(2, some_specs(slots=4))
    assert table.capacity.free(MODEL) == 16
    assert table.capacity.nodes(MODEL) == 2


def test_a_model_that_nobody_has_any_more_is_counted_no_longer() -> None:
    table = a_table(2)
    for number in (1, 2):
        table.set_specs(node_id(number), some_specs(a_model(id=f"new-{number}")))
        table.set_specs(node_id(number), some_specs(a_model(id=OTHER)))
    assert table.capacity.nodes(MODEL) == table.capacity.free(MODEL) == 0
    assert set(table.capacity._nodes) == set(table.capacity._free) == {OTHER}


def test_a_reservation_takes_a_place_and_a_release_gives_it_back_and_says_so() -> None:
    table = a_table(1, some_specs(slots=1))
    heard = told(table)
    held = table.reserve(node_id(1), a_job(), now_s=NOW_S)
    assert (table.capacity.free(MODEL), heard) == (1, [])
    table.release(held, now_s=NOW_S)
    assert (table.capacity.free(MODEL), heard) == (2, [{MODEL}])


def test_work_of_others_takes_places_too() -> None:
    table = a_table(1, some_specs(slots=1))
    table.set_load(node_id(1), NodeLoad(foreign=5), now_s=NOW_S)
    assert table.capacity.free(MODEL) == 0
    heard = told(table)
    table.set_load(node_id(1), NodeLoad(), now_s=NOW_S)
    assert (table.capacity.free(MODEL), heard) == (2, [{MODEL}])


def test_a_model_that_is_not_measured_is_there_but_has_no_place_yet() -> None:
    table = a_table(1, some_specs(a_model(measured=None)))
    assert (table.capacity.free(MODEL), table.capacity.nodes(MODEL)) == (0, 1)
    heard = told(table)
    table.set_specs(node_id(1), some_specs())
    assert (table.capacity.free(MODEL), heard) == (8, [{MODEL}])


def test_a_node_that_drains_or_leaves_has_no_place() -> None:
    table = a_table(2, some_specs(slots=1))
    table.set_load(node_id(1), NodeLoad(draining=True), now_s=NOW_S)
    assert (table.capacity.free(MODEL), table.capacity.nodes(MODEL)) == (2, 1)
    table.disconnect(node_id(2), unix_s=0.0)
    assert (table.capacity.free(MODEL), table.capacity.nodes(MODEL)) == (0, 0)


def test_a_node_that_is_only_remembered_is_not_there() -> None:
    table = NodeTable()
    table.remember(node_id(1), some_specs(), last_seen_unix_s=None)
    assert (table.capacity.free(MODEL), table.capacity.nodes(MODEL)) == (0, 0)


class AnyTable(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = NodeTable()
        self.held: list[Reservation] = []

    @rule(number=st.integers(1, 4), slots=st.integers(1, 3), measured=st.booleans(), second=st.booleans())
    def connect(self, *, number: int, slots: int, measured: bool, second: bool) -> None:
        first = a_model() if measured else a_model(measured=None)
        models = (first, a_model(id=OTHER)) if second else (first,)
        self.table.connect(node_id(number), some_specs(*models, slots=slots), now_s=NOW_S)

    @precondition(lambda self: len(self.table) > 0)
    @rule(data=st.data(), foreign=st.integers(0, 8), draining=st.booleans())
    def report(self, *, data: st.DataObject, foreign: int, draining: bool) -> None:
        row = data.draw(st.sampled_from(list(self.table)))
        self.table.set_load(row.id, NodeLoad(foreign=foreign, draining=draining), now_s=NOW_S)

    @precondition(lambda self: len(self.table) > 0)
    @rule(data=st.data())
    def change_models(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(list(self.table)))
        self.table.set_specs(row.id, msgspec.structs.replace(row.specs, models=(a_model(id=OTHER),)))

    @precondition(lambda self: len(self.table) > 0)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.table.disconnect(data.draw(st.sampled_from(list(self.table))).id, unix_s=0.0)

    @precondition(lambda self: any(MODEL in row.models for row in self.table))
    @rule(data=st.data())
    def reserve(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from([row for row in self.table if MODEL in row.models]))
        self.held.append(self.table.reserve(row.id, a_job(), now_s=NOW_S))

    @precondition(lambda self: self.held)
    @rule()
    def release(self) -> None:
        self.table.release(self.held.pop(0), now_s=NOW_S)

    @invariant()
    def counts_what_is_there(self) -> None:
        for model in (MODEL, OTHER):
            there = [row for row in self.table if model in row.models and row.connected and not row.load.draining]
            measured = [row for row in there if row.models[model].measured is not None]
            assert self.table.capacity.nodes(model) == len(there)
            assert self.table.capacity.free(model) == sum(free_slots(row) for row in measured)


TestAnyTable = AnyTable.TestCase
TestAnyTable.settings = walks(30, steps=40)
