"""Whatever happens to nodes, in whatever order: each keeps its own numbers, and what is released is gone."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparewatt.core.ids import ModelId, NodeId
from sparewatt.core.lessons import SLOWER_MAX
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs, Speed
from tests.trying import walks
from tests.unit.inference.nodes import a_job, a_model, node_id, some_specs, table_of

MODELS = ["a", "b", "c/d"]

nodes = st.integers(1, 24).map(node_id)
reports = st.builds(
    a_model,
    id=st.sampled_from(MODELS),
    state=st.sampled_from(["warm", "loading", "on_disk"]),
    weights_bytes=st.integers(0, 10**11),
    measured=st.none() | st.builds(Speed, prefill_tps=st.floats(1, 1e4), decode_tps=st.floats(1, 1e3)),
)
some = st.builds(
    lambda models, slots: some_specs(slots=slots, models=tuple(models)),
    st.lists(reports, max_size=3, unique_by=lambda report: report.id),
    st.integers(1, 64),
)
loads = st.builds(
    NodeLoad,
    foreign=st.integers(0, 9),
    draining=st.booleans(),
    foreign_kv_bytes=st.integers(0, 10**10),
    foreign_backlog_s=st.floats(0, 100),
    kv_capacity_bytes=st.none() | st.integers(0, 10**11),
    prefill_share=st.floats(0, 1),
)
Columns = dict[tuple[str, NodeId], list[float]]


class NodesComeAndGo(RuleBasedStateMachine):
    """Beside the table stands what was told to it, in plain dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.table = NodeTable()
        self.specs: dict[NodeId, NodeSpecs] = {}
        self.loads: dict[NodeId, NodeLoad] = {}
        self.connected: dict[NodeId, bool] = {}
        self.held: list[Reservation] = []
        self.now_s = 1.0

    def known(self, data: st.DataObject) -> NodeId:
        self.now_s += 1.0
        return data.draw(st.sampled_from(sorted(self.specs)))

    @rule(node=nodes, specs=some)
    def remember(self, node: NodeId, specs: NodeSpecs) -> None:
        self.table.remember(node, specs, last_seen_unix_s=None)
        self.specs.setdefault(node, specs)
        self.loads.setdefault(node, NodeLoad())
        self.connected.setdefault(node, False)

    @rule(node=nodes, specs=some)
    def connect(self, node: NodeId, specs: NodeSpecs) -> None:
        self.now_s += 1.0
        assert self.table.connect(node, specs, now_s=self.now_s)
        self.specs[node], self.loads[node], self.connected[node] = specs, NodeLoad(), True

    @precondition(lambda self: self.specs)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        node = self.known(data)
        self.table.disconnect(node, unix_s=self.now_s)
        self.connected[node] = False

    @precondition(lambda self: self.specs)
    @rule(data=st.data(), specs=some)
    def set_specs(self, data: st.DataObject, specs: NodeSpecs) -> None:
        node = self.known(data)
        self.table.set_specs(node, specs)
        self.specs[node] = specs

    @precondition(lambda self: self.specs)
    @rule(data=st.data(), load=loads)
    def set_load(self, data: st.DataObject, load: NodeLoad) -> None:
        node = self.known(data)
        self.table.set_load(node, load, now_s=self.now_s)
        self.loads[node] = load

    @precondition(lambda self: self.specs)
    @rule(data=st.data(), rtt_s=st.floats(0, 1), failed=st.booleans())
    def learn(self, data: st.DataObject, rtt_s: float, *, failed: bool) -> None:
        node = self.known(data)
        self.table.set_rtt(node, rtt_s, now_s=self.now_s)
        if failed:
            self.table.note_failure(node, model="a", now_s=self.now_s)
        else:
            self.table.note_success(node, model=ModelId("a"), output_tokens=9)

    @precondition(lambda self: any(specs.models for specs in self.specs.values()))
    @rule(data=st.data(), prompt=st.integers(1, 9999), output=st.integers(1, 9999), streamed=st.booleans())
    def reserve(self, data: st.DataObject, prompt: int, output: int, *, streamed: bool) -> None:
        able = sorted((node, model.id) for node, specs in self.specs.items() for model in specs.models)
        node, model = data.draw(st.sampled_from(able))
        job = a_job(model=ModelId(model), prompt_tokens=prompt, output_tokens=output)
        self.held.append(self.table.reserve(node, job, now_s=self.now_s, is_streamed=streamed))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), twice=st.booleans())
    def release(self, data: st.DataObject, *, twice: bool) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.table.release(held, now_s=self.now_s)
        if twice:
            self.table.release(held, now_s=self.now_s)
            self.table.note_first_token(held, now_s=self.now_s)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), passed_s=st.floats(0, 30))
    def prompt_read(self, data: st.DataObject, passed_s: float) -> None:
        self.now_s += passed_s
        self.table.note_first_token(data.draw(st.sampled_from(self.held)), now_s=self.now_s)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), steps=st.integers(0, 5000), passed_s=st.floats(0, 30))
    def answer_ends(self, data: st.DataObject, steps: int, passed_s: float) -> None:
        self.now_s += passed_s
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.table.note_answer(held, steps=steps, now_s=self.now_s)
        self.table.release(held, now_s=self.now_s)

    @invariant()
    def every_model_lists_the_nodes_that_have_it(self) -> None:
        for model in MODELS:
            entries = self.table.columns_of(model)
            having = {node for node, specs in self.specs.items() if any(m.id == model for m in specs.models)}
            assert (set(entries.nodes) if entries else set()) == having
            assert len(entries.nodes if entries else []) == len(having)
        assert self.table.model_ids() == {model.id for specs in self.specs.values() for model in specs.models}

    @invariant()
    def rows_say_what_was_told(self) -> None:
        assert {row.id for row in self.table} == set(self.specs)
        for row in self.table:
            told = (self.specs[row.id], self.loads[row.id], self.connected[row.id])
            assert (row.specs, row.load, row.connected) == told
            self._check_reservations(row, [held for held in self.held if held.node_id == row.id])

    def _check_reservations(self, row: NodeRow, held: list[Reservation]) -> None:
        assert row.own_jobs == len(held) == sum(row.own_active.values())
        assert row.own_kv_bytes == pytest.approx(sum(item.kv_bytes for item in held))
        unread_s = sum(item.prefill_s for item in held if item.reading_prompt)
        assert row.own_unread_s == pytest.approx(unread_s, abs=1e-6)
        if not held:
            assert row.own_read_from_s <= self.now_s
            assert (row.own_unread_s, row.own_kv_bytes, row.own_active) == (0.0, 0.0, {})

    @invariant()
    def columns_are_those_of_a_fresh_table(self) -> None:
        assert columns(self.table) == columns(table_of(*self.table))

    def teardown(self) -> None:
        for held in self.held:
            self.table.release(held, now_s=self.now_s)
        assert all((row.own_jobs, row.own_unread_s, row.own_kv_bytes) == (0, 0.0, 0.0) for row in self.table)
        assert not any(self.table.in_flight(model) for model in MODELS)
        for position in (position for row in self.table for position in row.positions.values()):
            for lessons in (position.reading, position.writing):
                assert 1 / SLOWER_MAX <= lessons.factor <= SLOWER_MAX


def columns(table: NodeTable) -> Columns:
    """Everything that a scan reads, by model and node; a place must be where its node says it is."""
    found: Columns = {}
    for model in table.model_ids():
        entries = table.columns_of(model)
        assert entries is not None
        for place, node in enumerate(entries.nodes):
            row = table.get(node)
            assert row is not None
            assert (row.positions[model].index, row.index) == (place, entries.rows[place])
            assert entries.hashes[place] == row.hash
            found[model, node] = entries.by_field[:, place].tolist()
    return found


TestNodesComeAndGo = NodesComeAndGo.TestCase
TestNodesComeAndGo.settings = walks(30, steps=40)
