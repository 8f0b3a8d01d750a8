"""The table of nodes that the matcher reads: what they report, and the jobs sent to them. In memory only.

A reservation counts a job at the moment of the pick, before the node has received it: without that, every job of a
burst would go to the same node. What jobs teach about a node's speed is adjusted for the company that they had: for
each model in use the table counts the steps that the node's figures allow while jobs come and go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.limits import LINK_JOBS_MAX, NODES_MAX
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.columns import ColumnField, Floats, NodeColumns
from sparewatt.inference.matcher.formula import hash_text
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.matcher.node_row import (
    TOKENS_PER_PRICE,
    ColumnPosition,
    NodeRow,
    active_bytes_of,
    load_values,
    record_values,
    specs_values,
    step_s_of,
)
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs

NODE_AHEAD_PER_SLOT = 1
"""Jobs sent ahead to a node for each one that runs: no slot idles for a round trip, the rest waits in line."""

_UNAVAILABLE = -1
_JOBS_PER_SLOT = 1 + NODE_AHEAD_PER_SLOT
_SLOTS_COUNTED_MAX = LINK_JOBS_MAX // _JOBS_PER_SLOT
"""With more slots than this the link is the bound."""


class CapacityCount:
    """Implements CapacityView. A node with several models counts its slots for each of them."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._nodes: dict[str, int] = {}
        self._counted: list[int] = []
        """What is counted of each row, by its index."""
        self._on_freed: list[Callable[[Iterable[str]], None]] = []

    def subscribe(self, on_freed: Callable[[Iterable[str]], None]) -> None:
        """Call `on_freed` with the models of every node that gains a free slot. Often: it must be cheap."""
        self._on_freed.append(on_freed)

    def free(self, model: ModelId) -> int:
        return self._free.get(model, 0)

    def nodes(self, model: ModelId) -> int:
        return self._nodes.get(model, 0)

    def update(self, row: NodeRow) -> None:
        """Recount a row. Called on every report: it must cost nothing if nothing has changed."""
        before, now = self._counted[row.index], free_slots(row)
        if now == before:
            return
        self._counted[row.index] = now
        if now >= 0 <= before:
            self._add_slots(row, now - before)
        else:
            self._add(row, max(0, now) - max(0, before), nodes=(now >= 0) - (before >= 0))
        if now > before:
            self._notify_freed(row)

    def update_jobs(self, row: NodeRow, more: int) -> None:
        """The same as `update` when only the number of jobs has changed; faster while slots stay free."""
        before = self._counted[row.index]
        now = before - more
        if before <= 0 or now <= 0:
            self.update(row)
            return
        self._counted[row.index] = now
        self._add_slots(row, -more)
        if more < 0:
            self._notify_freed(row)

    def forget(self, row: NodeRow) -> None:
        """Take the row out, because it is new or its models are about to change; `update` counts it again."""
        self._counted.extend([_UNAVAILABLE] * (row.index + 1 - len(self._counted)))
        if self._counted[row.index] >= 0:
            self._add(row, -self._counted[row.index], nodes=-1)
            self._counted[row.index] = _UNAVAILABLE

    def _add(self, row: NodeRow, slots: int, *, nodes: int) -> None:
        for name in row.models:
            self._nodes[name] = self._nodes.get(name, 0) + nodes
            self._free.setdefault(name, 0)
        self._add_slots(row, slots)
        if nodes < 0:
            for name in row.models:
                if not self._nodes[name]:
                    del self._nodes[name], self._free[name]

    def _notify_freed(self, row: NodeRow) -> None:
        for on_freed in self._on_freed:
            on_freed(row.models)

    def _add_slots(self, row: NodeRow, slots: int) -> None:
        free = self._free
        for name, model in row.models.items():
            if model.measured is not None:
                free[name] += slots


def free_slots(row: NodeRow) -> int:
    """Zero for a node that is full, less for one that takes no jobs."""
    load, slots = row.load, row.specs.slots
    if not row.connected or load.draining:
        return _UNAVAILABLE
    jobs_max = slots * _JOBS_PER_SLOT if slots <= _SLOTS_COUNTED_MAX else LINK_JOBS_MAX
    free = jobs_max - row.own_jobs - load.foreign
    return free if free > 0 else 0  # noqa: FURB136 (a call to max costs more than the rest)


if TYPE_CHECKING:
    from sparewatt.inference.matcher.shortlist import Shortlists

SUSPECT_FIRST_S, SUSPECT_S_MAX = 2.0, 60.0
"""How long a node is suspect after a failure; each further one in a row doubles it."""
FAILURES_IN_ROW_MAX = 16
OUTPUT_TOKENS_DEFAULT = 256
OUTPUT_EWMA = 0.1
OUTPUT_TOKENS_LEARNED_MAX = 32_768
"""The most that one job can teach: the count is the node's own word, and it sizes the next jobs of all users."""
RTT_EWMA = 0.3

_NANO_PRICE = NANO_PER_USD * TOKENS_PER_PRICE
"""Nano-USD per million tokens, of a price in dollars per token."""
_NO_PRICES: Floats = np.empty(0)

DIRTY_ROWS_MAX = 64
"""Rows that a match may find to be written: a tenth of a millisecond."""

OVERHEAD_FROM_S, OVERHEAD_S_MAX, OVERHEAD_EWMA = 0.2, 0.1, 0.1
"""The hops between gateway and model server take time of their own: learned from prompts shorter than this."""
STALL_MAX = 2.0
"""How many times longer than expected a prompt may be taken to have stalled the answers beside it."""
TAUGHT_MAX = 64
"""Models that a node no longer has, of which lessons are kept."""
STEPS_MIN = 7
"""Fewer steps say more about the network than about a node's speed."""


class Reservation(msgspec.Struct, eq=False, gc=False):
    """One job's slot on one node. Released exactly once, however the job ends."""

    node_id: NodeId
    model: ModelId
    prefill_s: float
    """To read its prompt, by what is known of the node."""
    figures_s: float
    """The same by the node's figures alone."""
    kv_bytes: float
    made_at_s: float
    reading_prompt: bool = True
    """False once its first token came, or where that is not seen."""
    was_loaded: bool = True
    """Whether its model was: else its first token says how long loading took, not how fast the node reads."""
    steps_before: float = 0.0
    """Steps that the node's figures had allowed when its first token came."""
    released: bool = False


class NodeTable:
    def __init__(self, *, nodes_max: int | None = None) -> None:
        self._rows: dict[NodeId, NodeRow] = {}
        self._free_indexes: list[int] = []
        """Of nodes that were forgotten: with the rows they are all numbers from zero."""
        self._by_owner: dict[AccountId, set[NodeId]] = {}
        self._reservations: dict[int, Reservation] = {}
        self._typical_output: dict[ModelId, float] = {}
        self._columns: dict[str, NodeColumns] = {}
        self._dirty: dict[int, NodeRow] = {}
        """By index. A job changes its node's row six times, and only the next match reads it (ADR 41)."""
        self._version_floor = 0
        """Where the version of new columns begins: beyond that of any that were dropped."""
        self._in_flight: dict[str, int] = {}
        self._nodes_max = nodes_max
        self._shortlists: dict[str, Shortlists] = {}
        self._prefix_cachers: dict[str, set[NodeId]] = {}
        """By model, the nodes whose servers have a prefix cache."""
        self.capacity = CapacityCount()

    def __iter__(self) -> Iterator[NodeRow]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, node_id: NodeId) -> NodeRow | None:
        return self._rows.get(node_id)

    def columns_of(self, model: str) -> NodeColumns | None:
        """The nodes that have a model, as columns. Up to date until the table next changes: do not keep them."""
        if self._dirty:
            self._write_dirty()
        return self._columns.get(model)

    def has_model(self, model: str) -> bool:
        """Whether a known node has it, online or not."""
        return model in self._columns

    def shortlists_of(self, model: str) -> Shortlists:
        """Stored here for the matcher, which knows when they are stale."""
        return self._shortlists.setdefault(model, {})

    def caches_prefixes(self, model: str) -> bool:
        """Whether any node says that its server has a prefix cache for this model."""
        return bool(self._prefix_cachers.get(model))

    def model_ids(self) -> set[str]:
        """Every model that a known node has, online or not."""
        return set(self._columns)

    # membership

    def remember(
        self, node_id: NodeId, specs: NodeSpecs, *, last_seen_unix_s: float | None, has_served: bool = False
    ) -> None:
        """Add a node known from an earlier run; it is offline until it connects."""
        if node_id not in self._rows and len(self._rows) < (self._nodes_max or NODES_MAX):
            row = self._add(node_id, specs)
            row.last_seen_unix_s, row.served_before = last_seen_unix_s, has_served
            self.set_specs(node_id, specs)

    def connect(self, node_id: NodeId, specs: NodeSpecs, *, now_s: float) -> bool:
        """Returns False if the table is full."""
        if node_id not in self._rows and len(self._rows) >= (self._nodes_max or NODES_MAX):
            return False
        row = self._rows.get(node_id) or self._add(node_id, specs)
        row.connected = True
        row.last_heard_s = now_s
        row.suspect_until_s = 0.0
        row.load = NodeLoad()
        self.set_specs(node_id, specs)
        return True

    def disconnect(self, node_id: NodeId, *, unix_s: float) -> None:
        row = self._rows[node_id]
        row.connected = False
        row.last_seen_unix_s = unix_s
        self.capacity.update(row)
        self._mark(row)

    def forget(self, node_id: NodeId) -> bool:
        """Remove a node that is away. False if there is none, or its last job is not over yet."""
        row = self._rows.get(node_id)
        if row is None or row.connected or row.own_jobs:
            return False
        self.set_specs(node_id, msgspec.structs.replace(row.specs, models=()))
        self._dirty.pop(row.index, None)
        if row.owner is not None:
            self._leave_owner(row.owner, node_id)
        del self._rows[node_id]
        self._free_indexes.append(row.index)
        return True

    def _add(self, node_id: NodeId, specs: NodeSpecs) -> NodeRow:
        index = self._free_indexes.pop() if self._free_indexes else len(self._rows)
        row = self._rows[node_id] = NodeRow(id=node_id, specs=specs, index=index, hash=hash_text(node_id))
        return row

    def _leave_owner(self, owner: AccountId, node_id: NodeId) -> None:
        self._by_owner[owner].discard(node_id)
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def set_owner(self, node_id: NodeId, owner: AccountId) -> None:
        row = self._rows[node_id]
        if row.owner is not None:
            self._leave_owner(row.owner, node_id)
        row.owner = owner
        self._by_owner.setdefault(owner, set()).add(node_id)

    def nodes_of(self, owner: AccountId) -> Collection[NodeId]:
        return self._by_owner.get(owner, ())

    # reports

    def set_specs(self, node_id: NodeId, specs: NodeSpecs) -> None:
        row = self._rows[node_id]
        self.capacity.forget(row)
        row.specs = specs
        row.models = {model.id: model for model in specs.models}
        for gone in [model for model in row.positions if model not in row.models]:
            self._remove_position(row, gone)
        for model in row.models.values():
            self._write_specs(row, model)
        row.active_bytes = active_bytes_of(row)
        self.capacity.update(row)
        self._mark(row)

    def set_load(self, node_id: NodeId, load: NodeLoad, *, now_s: float) -> None:
        row = self._rows[node_id]
        before = row.load
        row.last_heard_s = now_s
        if load == before and not load.foreign_backlog_s:
            for position in row.positions.values():
                position.columns.write_heartbeat(position.index, now_s)
            return
        self._count_steps(row, now_s)
        row.load = load
        if load.foreign:
            row.is_read_undisturbed = False
        if load.foreign_models != before.foreign_models:
            row.active_bytes = active_bytes_of(row)
        if load.draining is not before.draining:
            self.capacity.update(row)
        elif load.foreign != before.foreign:
            self.capacity.update_jobs(row, load.foreign - before.foreign)
        self._mark(row)

    def set_rtt(self, node_id: NodeId, rtt_s: float, *, now_s: float) -> None:
        row = self._rows[node_id]
        row.rtt_s = rtt_s if row.rtt_s == 0.0 else row.rtt_s + RTT_EWMA * (rtt_s - row.rtt_s)
        row.last_heard_s = now_s
        self._mark(row)

    # reservations

    def reserve(
        self, node_id: NodeId, job: MatchJob, *, now_s: float, cached_tokens: int = 0, is_streamed: bool = True
    ) -> Reservation:
        """Count the job on the node from now on. Cached tokens of its prompt need no prefill.

        When the prompt of an answer that is not streamed has been read is not seen: it is taken to be read in time.
        """
        row = self._rows[node_id]
        position = row.positions[job.model]
        self._count_steps(row, now_s)
        figures_s = position.figures.prefill_s(job.prompt_tokens, cached_tokens)
        prefill_s = figures_s * position.reading.factor
        model = row.models[job.model]
        kv_bytes = (job.prompt_tokens + job.output_tokens / 2) * model.kv_bytes_per_token
        was_loaded = model.state == "warm"
        reservation = Reservation(node_id, job.model, prefill_s, figures_s, kv_bytes, now_s, is_streamed, was_loaded)
        self._reservations[id(reservation)] = reservation
        self._begin_reading(row, reservation, now_s)
        row.own_jobs += 1
        row.own_kv_bytes += kv_bytes
        if row.own_jobs > row.specs.slots:
            row.is_read_undisturbed = False
        if _count_up(row.own_active, job.model):
            row.active_bytes = active_bytes_of(row)
        _count_up(self._in_flight, job.model)
        self.capacity.update_jobs(row, 1)
        self._mark(row)
        return reservation

    def _begin_reading(self, row: NodeRow, reservation: Reservation, now_s: float) -> None:
        """Its turn comes behind the prompts that were sent before."""
        if row.own_unread_s <= 0.0:
            row.own_read_from_s = max(row.own_read_from_s, now_s + row.rtt_s)
        if reservation.reading_prompt:
            row.own_unread_s += reservation.prefill_s
        else:
            row.own_read_from_s += reservation.prefill_s
            row.is_read_undisturbed = False

    def note_first_token(self, reservation: Reservation, *, now_s: float) -> None:
        """The prompt is read: it no longer delays other jobs, and says how fast the node reads."""
        if not reservation.reading_prompt or reservation.released:
            return
        row = self._rows[reservation.node_id]
        position = row.positions.get(reservation.model)
        self._count_steps(row, now_s)
        if position is not None:
            if reservation.was_loaded:
                self._learn_reading(row, position, reservation, now_s)
            row.read_at_s = now_s
            reservation.steps_before = position.steps
        self._end_reading(row, reservation)
        row.own_read_from_s = now_s

    def _end_reading(self, row: NodeRow, reservation: Reservation) -> None:
        reservation.reading_prompt = False
        row.own_unread_s = max(0.0, row.own_unread_s - reservation.prefill_s)
        self._mark(row)

    def release(self, reservation: Reservation, *, now_s: float) -> None:
        if reservation.released:
            return
        row = self._rows[reservation.node_id]
        self._count_steps(row, now_s)
        if reservation.reading_prompt:
            self._end_reading(row, reservation)
        reservation.released = True
        self._reservations.pop(id(reservation), None)
        row.own_jobs -= 1
        if row.own_jobs:
            row.own_kv_bytes = max(0.0, row.own_kv_bytes - reservation.kv_bytes)
        else:
            row.own_kv_bytes = row.own_unread_s = 0.0
            row.own_read_from_s = min(row.own_read_from_s, now_s)
        if _count_down(row.own_active, reservation.model):
            row.active_bytes = active_bytes_of(row)
        _count_down(self._in_flight, reservation.model)
        self.capacity.update_jobs(row, -1)
        self._mark(row)

    def expire_reservations(self, *, older_than_s: float, now_s: float) -> int:
        """Release reservations that leaked: zero unless there is a bug, and bounded damage if there is."""
        leaked = [
            reservation for reservation in self._reservations.values() if now_s - reservation.made_at_s > older_than_s
        ]
        for reservation in leaked:
            self.release(reservation, now_s=now_s)
        return len(leaked)

    # what jobs teach

    def note_success(self, node_id: NodeId, *, model: ModelId, output_tokens: int | None) -> None:
        row = self._rows[node_id]
        row.jobs_done += 1
        row.suspect_until_s, row.failed_in_row = 0.0, 0
        if output_tokens is not None:
            before = self._typical_output.get(model, OUTPUT_TOKENS_DEFAULT)
            learned = min(max(output_tokens, 0), OUTPUT_TOKENS_LEARNED_MAX)
            now = self._typical_output[model] = before + OUTPUT_EWMA * (learned - before)
            position = row.positions.get(model)
            if position is not None:
                position.output_tokens = now
        self._mark(row)

    def note_failure(self, node_id: NodeId, *, now_s: float) -> None:
        row = self._rows[node_id]
        row.jobs_failed += 1
        row.suspect_until_s = now_s + min(SUSPECT_S_MAX, SUSPECT_FIRST_S * 2**row.failed_in_row)
        row.failed_in_row = min(FAILURES_IN_ROW_MAX, row.failed_in_row + 1)
        self._mark(row)

    def note_answer(self, reservation: Reservation, *, steps: int, now_s: float) -> None:
        """An answer is whole: how many steps it took since its first token. Call it before the release."""
        row = self._rows[reservation.node_id]
        position = row.positions.get(reservation.model)
        if position is None or steps < STEPS_MIN or not reservation.steps_before:
            return
        self._count_steps(row, now_s)
        allowed = position.steps - reservation.steps_before
        position.writing.add(observed=allowed, predicted=steps, faster_max=position.figures.faster_max)
        self._mark(row)

    def _learn_reading(self, row: NodeRow, position: ColumnPosition, reservation: Reservation, now_s: float) -> None:
        """A prompt is timed from when it arrived, or from when the one before it was read."""
        is_beside_answers = row.own_jobs > 1
        there_s = reservation.made_at_s + row.rtt_s
        took_s = max(0.0, now_s - max(there_s, row.read_at_s))
        if there_s >= row.read_at_s:
            self._learn_overhead(row, reservation, took_s)
            took_s = max(0.0, took_s - row.overhead_s)
        if is_beside_answers and not row.load.foreign:
            self._count_stall(row, min(took_s, STALL_MAX * reservation.prefill_s))
        if row.is_read_undisturbed and len(row.own_active) == 1:
            predicted_s = reservation.figures_s * (position.figures.read_slower if is_beside_answers else 1.0)
            position.reading.add(observed=took_s, predicted=predicted_s, faster_max=position.figures.faster_max)
        row.is_read_undisturbed = not row.load.foreign and row.own_jobs <= row.specs.slots

    def _learn_overhead(self, row: NodeRow, reservation: Reservation, took_s: float) -> None:
        """What comes on top of round trip and prefill, from short prompts that nothing delayed."""
        if row.is_read_undisturbed and reservation.prefill_s < OVERHEAD_FROM_S:
            lesson_s = max(-OVERHEAD_S_MAX, min(OVERHEAD_S_MAX, took_s - reservation.prefill_s - row.overhead_s))
            row.overhead_s = max(0.0, min(OVERHEAD_S_MAX, row.overhead_s + OVERHEAD_EWMA * lesson_s))

    def _count_steps(self, row: NodeRow, now_s: float) -> None:
        """Count the steps that its figures allow each model in use, up to now, before something changes.

        When prompts of others are read is not seen, only how much of the time: then that share is lost.
        """
        passed_s, row.stepped_at_s = now_s - row.stepped_at_s, now_s
        if passed_s <= 0.0 or not row.own_active:
            return
        load = row.load
        others, share = row.own_jobs + load.foreign - 1, load.prefill_share if load.foreign else 0.0
        for model in row.own_active:
            position = row.positions.get(model)
            if position is not None:
                pace = 1.0 - share * position.figures.stall_share
                position.steps += passed_s * pace / step_s_of(row, position, others)

    def _count_stall(self, row: NodeRow, took_s: float) -> None:
        """A prompt was read for so long: the other jobs got fewer steps in that time."""
        for model in row.own_active:
            position = row.positions.get(model)
            if position is not None:
                lost_s = took_s * position.figures.stall_share
                position.steps -= lost_s / step_s_of(row, position, row.own_jobs - 1)

    def typical_output_tokens(self, model: ModelId) -> int:
        return max(1, round(self._typical_output.get(model, OUTPUT_TOKENS_DEFAULT)))

    # prices

    def median_price(self, model: ModelId) -> tuple[int, int]:
        """Nano-USD per million tokens of prompt and of completion, over the nodes that are connected and measured."""
        prompt, completion = (float(np.median(prices)) if prices.size else 0.0 for prices in self._prices(model))
        return math.ceil(prompt * _NANO_PRICE), math.ceil(completion * _NANO_PRICE)

    def dearest_price(self, model: ModelId) -> tuple[int, int]:
        """The highest that any of them asks for, in each direction."""
        prompt, completion = (float(np.max(prices, initial=0.0)) for prices in self._prices(model))
        return round(prompt * _NANO_PRICE), round(completion * _NANO_PRICE)

    def _prices(self, model: ModelId) -> tuple[Floats, Floats]:
        """Of the nodes that are connected and measured; of all, if none are."""
        columns = self.columns_of(model)
        if columns is None:
            return _NO_PRICES, _NO_PRICES
        data = columns.by_field
        usable = (data[ColumnField.CONNECTED] != 0) & (data[ColumnField.MEASURED] != 0)
        usable = usable if usable.any() else np.ones(len(columns), bool)
        return data[ColumnField.PROMPT_USD][usable], data[ColumnField.COMPLETION_USD][usable]

    # demand

    def in_flight(self, model: str) -> int:
        """Jobs of a model that were sent from here and are not over."""
        return self._in_flight.get(model, 0)

    def models_in_flight(self) -> list[str]:
        """Those that some job sent from here is for."""
        return list(self._in_flight)

    # columns

    def _mark(self, row: NodeRow) -> None:
        """Note that a row's load or record changed, to be written before its columns are read (`columns_of`)."""
        self._dirty[row.index] = row
        if len(self._dirty) >= DIRTY_ROWS_MAX:
            self._write_dirty()

    def _write_dirty(self) -> None:
        rows, self._dirty = self._dirty, {}
        for row in rows.values():
            for position in row.positions.values():
                values = load_values(row, position) + record_values(row, position)
                position.columns.write_dynamic(position.index, values)

    def _write_specs(self, row: NodeRow, model: ModelReport) -> None:
        figures, values = specs_values(row.specs, model)
        position = row.positions.get(model.id)
        if position is None:
            columns = self._columns.get(model.id)
            if columns is None:
                columns = self._columns[model.id] = NodeColumns(version=self._version_floor)
            index = columns.add(row.id, row.hash, row.index)
            position = row.positions[model.id] = ColumnPosition(model.id, columns, index, figures)
            position.output_tokens = float(self.typical_output_tokens(ModelId(model.id)))
            position.reading, position.writing = row.taught.pop(model.id, (position.reading, position.writing))
        position.figures = figures
        position.columns.write_specs(position.index, values)
        cachers = self._prefix_cachers.setdefault(model.id, set())
        cachers.add(row.id) if model.prefix_cache_tokens else cachers.discard(row.id)

    def _remove_position(self, row: NodeRow, model: str) -> None:
        position = row.positions.pop(model)
        if position.reading.count or position.writing.count:
            row.taught[model] = position.reading, position.writing
            if len(row.taught) > TAUGHT_MAX:
                del row.taught[next(iter(row.taught))]
        self._prefix_cachers[model].discard(row.id)
        moved = position.columns.remove(position.index)
        if moved is not None:
            self._rows[moved].positions[model].index = position.index
        if not position.columns:
            del self._columns[model], self._prefix_cachers[model]
            self._version_floor = max(self._version_floor, position.columns.version + 1)
            self._shortlists.pop(model, None)
            self._typical_output.pop(ModelId(model), None)


def _count_up(counts: dict[str, int], name: str) -> bool:
    """Whether it is the first."""
    before = counts.get(name, 0)
    counts[name] = before + 1
    return not before


def _count_down(counts: dict[str, int], name: str) -> bool:
    """Whether that was the last."""
    left = counts.get(name, 0) - 1
    if left > 0:
        counts[name] = left
        return False
    counts.pop(name, None)
    return True
