"""The table of nodes that the matcher reads: what they report, and the jobs sent to them. In memory only.

A reservation counts a job at the moment of the pick, before the node has received it: without that, every job of a
burst would go to the same node. What jobs teach about a node's speed is adjusted for the company that they had: for
each model in use the table counts the steps that the node's figures allow while jobs come and go.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.capacity_count import CapacityCount
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

if TYPE_CHECKING:
    from sparewatt.inference.matcher.shortlist import Shortlists

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
"""Models that a node no longer has, of which lessons and failures are kept."""
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
    is_trial: bool = False
    """Whether it waits for its first token at a node that has yet to prove itself."""
    released: bool = False


class NodeTable:
    def __init__(self, *, nodes_max: int | None = None) -> None:
        self._rows: dict[NodeId, NodeRow] = {}
        self._by_index: list[NodeRow] = []
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

    def remember(self, node_id: NodeId, specs: NodeSpecs, *, last_seen_unix_s: float | None) -> None:
        """Add a node known from an earlier run; it is offline until it connects."""
        if node_id not in self._rows and len(self._rows) < (self._nodes_max or NODES_MAX):
            self._add(node_id, specs).last_seen_unix_s = last_seen_unix_s
            self.set_specs(node_id, specs)

    def connect(self, node_id: NodeId, specs: NodeSpecs, *, now_s: float) -> bool:
        """Returns False if the table is full."""
        if node_id not in self._rows and len(self._rows) >= (self._nodes_max or NODES_MAX):
            return False
        row = self._rows.get(node_id) or self._add(node_id, specs)
        row.connected = True
        row.last_heard_s = now_s
        for breaker in row.breakers.values():
            breaker.note_reconnected()
        self._note_breakers(row)
        row.load = NodeLoad()
        self.set_specs(node_id, specs)
        return True

    def disconnect(self, node_id: NodeId, *, unix_s: float) -> None:
        row = self._rows[node_id]
        row.connected = False
        row.last_seen_unix_s = unix_s
        self.capacity.update(row)
        self._mark(row)

    def _add(self, node_id: NodeId, specs: NodeSpecs) -> NodeRow:
        row = NodeRow(id=node_id, specs=specs, index=len(self._by_index), hash=hash_text(node_id))
        self._rows[node_id] = row
        self._by_index.append(row)
        return row

    def set_owner(self, node_id: NodeId, owner: AccountId) -> None:
        row = self._rows[node_id]
        if row.owner is not None:
            self._by_owner[row.owner].discard(node_id)
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
        reservation.is_trial = position.breaker.begin_job()
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
        self._end_trial(reservation)
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
        self._end_trial(reservation)
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

    def _end_trial(self, reservation: Reservation) -> None:
        row = self._rows[reservation.node_id]
        breaker = row.breakers.get(reservation.model)
        if reservation.is_trial and breaker is not None:
            breaker.end_trial()
            self._mark(row)
        reservation.is_trial = False

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
        if (breaker := row.breakers.get(model)) is not None:
            breaker.note_answer()
            self._note_breakers(row)
        if output_tokens is not None:
            before = self._typical_output.get(model, OUTPUT_TOKENS_DEFAULT)
            learned = min(max(output_tokens, 0), OUTPUT_TOKENS_LEARNED_MAX)
            now = self._typical_output[model] = before + OUTPUT_EWMA * (learned - before)
            position = row.positions.get(model)
            if position is not None:
                position.output_tokens = now
        self._mark(row)

    def note_failure(self, node_id: NodeId, *, model: str, now_s: float) -> None:
        self._rows[node_id].jobs_failed += 1
        self.note_slow(node_id, model=model, now_s=now_s)

    def note_slow(self, node_id: NodeId, *, model: str, now_s: float) -> None:
        """Another node was faster although it began later: jobs go elsewhere for a while; it is no failure."""
        row = self._rows[node_id]
        if (breaker := row.breakers.get(model)) is not None:
            breaker.note_failure(now_s)
            self._note_breakers(row)
        self._mark(row)

    def note_difference(self, node_id: NodeId, *, model: str, now_s: float) -> None:
        """It refused what another node did, for want of a feature: a failure only if it does so again and again."""
        breaker = self._rows[node_id].breakers.get(model)
        if breaker is None or not breaker.note_difference():
            self.note_failure(node_id, model=model, now_s=now_s)

    def _note_breakers(self, row: NodeRow) -> None:
        row.suspect_until_s = max((position.breaker.open_until_s for position in row.positions.values()), default=0.0)

    def is_shut(self, node_id: NodeId, model: str, *, now_s: float) -> bool:
        """Whether the breaker of a model lets no job through."""
        row = self._rows.get(node_id)
        breaker = row.breakers.get(model) if row is not None else None
        return breaker is not None and now_s < breaker.shut_until_s

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
            position.breaker = row.breakers.setdefault(model.id, position.breaker)
        position.figures = figures
        position.columns.write_specs(position.index, values)
        cachers = self._prefix_cachers.setdefault(model.id, set())
        cachers.add(row.id) if model.prefix_cache_tokens else cachers.discard(row.id)

    def _remove_position(self, row: NodeRow, model: str) -> None:
        position = row.positions.pop(model)
        if len(row.breakers) > len(row.positions) + TAUGHT_MAX:
            del row.breakers[next(name for name in row.breakers if name not in row.positions)]
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
