"""The table of nodes that the matcher reads: what they report, and the jobs sent to them. In memory only.

A reservation counts a job at the moment of the pick, before the node has received it: without that, every job of a
burst would go to the same node. What jobs teach about a node's speed is adjusted for the company that they had: for
each model in use the table counts the steps that the node's figures allow while jobs come and go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.asked_prices import asked_prices
from sparewatt.inference.matcher.capacity import CapacityCount
from sparewatt.inference.matcher.columns import ColumnField, NodeColumns
from sparewatt.inference.matcher.formula import hash_text
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.matcher.newcomers import TIMED_JOBS, Newcomers
from sparewatt.inference.matcher.node_row import (
    TOKENS_PER_PRICE,
    ColumnPosition,
    NodeRow,
    Timing,
    VerifiedFacts,
    active_bytes_of,
    load_left_s_of,
    load_values,
    record_values,
    specs_values,
    step_s_of,
)
from sparewatt.inference.matcher.node_zones import NodeZones
from sparewatt.inference.matcher.reservation import Reservation, count_down, count_up
from sparewatt.inference.matcher.unseen import UnseenTraffic
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
DIRTY_ROWS_MAX = 64
"""Rows that a match may find to be written: a tenth of a millisecond."""
OVERHEAD_FROM_S, OVERHEAD_S_MAX, OVERHEAD_EWMA = 0.2, 0.1, 0.1
"""The hops between gateway and model server take time of their own: learned from prompts shorter than this."""
STALL_MAX = 2.0
"""How many times longer than expected a prompt may be taken to have stalled the answers beside it."""
TIMINGS_MAX = 64
"""Models that a node no longer has, of which timings and failures are kept."""
TYPICAL_SAMPLE, TYPICAL_EVERY = 101, 64
"""Nodes of which the median speed of a model is taken, and after how many timed answers again."""
COLD_JOBS_MAX = 3
"""Jobs more than those it was timed with, for which a node may say that it must load the model first."""
STEPS_MIN = 7
"""Fewer steps say more about the network than about a node's speed."""


class NodeTable:
    def __init__(self, *, nodes_max: int | None = None, zones: NodeZones | None = None) -> None:
        self._rows: dict[NodeId, NodeRow] = {}
        self._free_indexes: list[int] = []  # of nodes that were forgotten
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
        self._typical: dict[str, tuple[float, float]] = {}
        """By model, the median of what was timed: seconds for a prompt of REFERENCE_TOKENS, and for a step."""
        self._timed_answers = 0
        self.capacity = CapacityCount()
        self.newcomers, self.zones, self.unseen = Newcomers(), zones or NodeZones(), UnseenTraffic()
        self.newly_timed: set[NodeId] = set()
        """Nodes of which something was timed that is not stored yet."""

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

    def forget(self, node_id: NodeId) -> bool:
        """Remove a node that is away. False if there is none, or its last job is not over yet."""
        row = self._rows.get(node_id)
        if row is None or row.connected or row.own_jobs:
            return False
        self.set_specs(node_id, msgspec.structs.replace(row.specs, models=()))
        self._leave_owner(row)
        self._dirty.pop(row.index, None)
        del self._rows[node_id]
        self._free_indexes.append(row.index)
        return True

    def _add(self, node_id: NodeId, specs: NodeSpecs) -> NodeRow:
        index = self._free_indexes.pop() if self._free_indexes else len(self._rows)
        row = self._rows[node_id] = NodeRow(id=node_id, specs=specs, index=index, hash=hash_text(node_id))
        return row

    def _leave_owner(self, row: NodeRow) -> None:
        if row.owner is not None:
            self._by_owner[row.owner].discard(row.id)
            if not self._by_owner[row.owner]:
                del self._by_owner[row.owner]

    def set_owner(self, node_id: NodeId, owner: AccountId) -> None:
        row = self._rows[node_id]
        self._leave_owner(row)
        row.owner = owner
        self._by_owner.setdefault(owner, set()).add(node_id)
        for position in row.positions.values():
            self._note_standing(row, position)

    def nodes_of(self, owner: AccountId) -> Collection[NodeId]:
        return self._by_owner.get(owner, ())

    # reports

    def set_specs(self, node_id: NodeId, specs: NodeSpecs, *, now_s: float | None = None) -> None:
        """`now_s`: when it was reported; without it, when the node was last heard."""
        row = self._rows[node_id]
        self.capacity.forget(row)
        row.specs, row.models = specs, {model.id: model for model in specs.models}
        for gone in [model for model in row.positions if model not in row.models]:
            self._remove_position(row, gone)
        for model in row.models.values():
            self._write_specs(row, model, row.last_heard_s if now_s is None else now_s)
        row.is_loading = any(position.loading_from_s is not None for position in row.positions.values())
        row.active_bytes = active_bytes_of(row)
        self.capacity.update(row)
        row.is_region_refuted = not self.zones.note(row)
        self._mark(row)

    def set_load(self, node_id: NodeId, load: NodeLoad, *, now_s: float) -> None:
        row = self._rows[node_id]
        before = row.load
        row.last_heard_s = now_s
        if load == before and not load.foreign_backlog_s and not row.is_loading:
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
        if load.foreign > before.foreign:
            self.unseen.note_report(row, load.foreign - before.foreign, now_s)
        self._mark(row)

    def set_rtt(self, node_id: NodeId, rtt_s: float, *, now_s: float) -> None:
        row = self._rows[node_id]
        smoothed_s = rtt_s if row.rtt_s == 0.0 else row.rtt_s + RTT_EWMA * (rtt_s - row.rtt_s)
        row.rtt_s, row.last_heard_s = smoothed_s, now_s
        row.is_region_refuted = not self.zones.note(row)
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
        prefill_s = figures_s * position.reading_factor
        model = row.models[job.model]
        kv_bytes = (job.prompt_tokens + job.output_tokens / 2) * model.kv_bytes_per_token
        was_loaded = model.state == "warm"
        position.cold_jobs += not was_loaded
        if position.cold_jobs > position.timed_jobs + COLD_JOBS_MAX:
            was_loaded = True  # or a node that always says so would never be timed
        reservation = Reservation(node_id, job.model, prefill_s, figures_s, kv_bytes, now_s, is_streamed, was_loaded)
        reservation.is_trial = position.breaker.begin_job()
        if not is_streamed:
            reservation.is_streamed, reservation.steps_before = False, position.steps
        self._reservations[id(reservation)] = reservation
        self._begin_reading(row, reservation, now_s)
        row.own_jobs += 1
        row.own_kv_bytes += kv_bytes
        if row.own_jobs > row.specs.slots:
            row.is_read_undisturbed = False
        if count_up(row.own_active, job.model):
            row.active_bytes = active_bytes_of(row)
        count_up(self._in_flight, job.model)
        self.newcomers.note_job(job.model, node_id)
        self.unseen.note_own(job.model, now_s)
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
        if count_down(row.own_active, reservation.model):
            row.active_bytes = active_bytes_of(row)
        count_down(self._in_flight, reservation.model)
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

    def set_verified(self, node_id: NodeId, facts: VerifiedFacts) -> None:
        """What the network knows of a node. Lists of allowed nodes are built anew if it changed."""
        row = self._rows.get(node_id)
        if row is None or row.verified == facts:
            return
        row.verified = facts
        for position in row.positions.values():
            position.columns.specs_version += 1
            position.columns.version += 1

    def set_suspended(self, node_id: NodeId, *, is_suspended: bool) -> None:
        """Whether the node gets no jobs but checks."""
        row = self._rows.get(node_id)
        if row is not None and row.is_suspended != is_suspended:
            row.is_suspended = is_suspended
            self.capacity.update(row)
            self._mark(row)

    def note_answer(self, reservation: Reservation, *, steps: int, now_s: float) -> bool:
        """An answer is whole: how many steps it took since its first token. Call it before the release.

        Returns whether the node can have written it in that time: else it is no success, and the node a newcomer again.

        Of an answer in one piece no first token is seen: then its prompt is taken to have been read as fast as usual.
        """
        row = self._rows[reservation.node_id]
        position = row.positions.get(reservation.model)
        if position is None:
            return True
        if not position.figures.can_write(steps, now_s - reservation.made_at_s):
            position.forget()
            self._note_standing(row, position)
            return False
        if steps >= STEPS_MIN and (reservation.steps_before or not reservation.is_streamed):
            self._count_steps(row, now_s)
            allowed = position.steps - reservation.steps_before
            if not reservation.is_streamed:
                read_s = reservation.figures_s * position.reading_factor
                allowed = max(0.0, allowed - read_s / step_s_of(row, position, row.own_jobs - 1))
            faster_max, least = position.figures.faster_max, position.writing_least
            position.writing.add(observed=allowed, predicted=steps, faster_max=faster_max, least=least)
        self._count_timed(row, position)
        self._mark(row)
        return True

    def _count_timed(self, row: NodeRow, position: ColumnPosition) -> None:
        position.timed_jobs += 1
        self.newly_timed.add(row.id)
        self._timed_answers += 1
        if position.timed_jobs == TIMED_JOBS:
            self.newcomers.discard(position.model, row.id)
        if position.timed_jobs == TIMED_JOBS or self._timed_answers % TYPICAL_EVERY == 0:
            self._update_typical(position.model)

    def _update_typical(self, model: str) -> None:
        """The median over some of the timed nodes of a model; newcomers count as no faster."""
        nodes = self._columns[model].nodes
        some = (self._rows[node_id].positions[model] for node_id in nodes[:: max(1, len(nodes) // TYPICAL_SAMPLE)])
        found = [position.timing() for position in some if position.is_timed]
        if found:
            self._typical[model] = median(item.read_s for item in found), median(item.step_s for item in found)
            for node_id in self.newcomers.nodes(model):  # the others are limited when they next report
                row = self._rows[node_id]
                row.positions[model].limit(self._typical[model])
                self._mark(row)

    def _note_standing(self, row: NodeRow, position: ColumnPosition) -> None:
        """Whether it is a newcomer, as its figures, its state or its owner may have changed.

        One that must load the model first waits for no turn: it is ranked with the others, by what loading costs.
        """
        if position.is_timed:
            self.newcomers.discard(position.model, row.id)
            return
        if position.model not in self._typical:
            self._update_typical(position.model)
        position.limit(self._typical.get(position.model))
        if position.figures.is_measured and row.models[position.model].state == "warm":
            self.newcomers.add(position.model, row.id, row.owner)
        else:
            self.newcomers.discard(position.model, row.id)

    def timings_of(self, node_id: NodeId) -> dict[str, Timing]:
        """What this network has timed of a node, by model."""
        row = self._rows[node_id]
        return row.timings | {model: each.timing() for model, each in row.positions.items() if each.timed_jobs}

    def restore(self, node: NodeId, timings: Mapping[str, Timing], record: tuple[float, float] | None = None) -> None:
        """Take up what was timed before, here or elsewhere, where that is more; and jobs done and failed on record."""
        row = self._rows[node]
        row.record_done, row.record_failed = record or (row.record_done, row.record_failed)
        for model, timing in timings.items():
            position = row.positions.get(model)
            if position is None:
                self._keep_timing(row, model, timing)
            elif position.figures.is_measured and timing.jobs > position.timed_jobs:
                position.restore(timing)
                self._note_standing(row, position)
        self._mark(row)

    def _keep_timing(self, row: NodeRow, model: str, timing: Timing) -> None:
        row.timings[model] = timing
        if len(row.timings) > TIMINGS_MAX:
            del row.timings[next(iter(row.timings))]

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
            faster_max, least = position.figures.faster_max, position.reading_least
            position.reading.add(observed=took_s, predicted=predicted_s, faster_max=faster_max, least=least)
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

    def dearest_price(self, model: ModelId) -> tuple[int, int]:
        """Nano-USD per million tokens of prompt and of completion: the highest that a connected, measured node asks."""
        prompt, completion = (float(np.max(prices, initial=0.0)) for prices in asked_prices(self.columns_of(model)))
        return round(prompt * _NANO_PRICE), round(completion * _NANO_PRICE)

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
                columns, index = position.columns, position.index
                if position.loading_from_s is not None:
                    columns.by_node[index, ColumnField.COLD_S] = load_left_s_of(row, position)
                columns.write_dynamic(index, load_values(row, position) + record_values(row, position))

    def _write_specs(self, row: NodeRow, model: ModelReport, now_s: float) -> None:
        figures, values = specs_values(row.specs, model)
        position = row.positions.get(model.id)
        if position is None:
            columns = self._columns.get(model.id)
            if columns is None:
                columns = self._columns[model.id] = NodeColumns(version=self._version_floor)
            index = columns.add(row.id, row.hash, row.index)
            position = row.positions[model.id] = ColumnPosition(model.id, columns, index, figures)
            position.output_tokens = float(self.typical_output_tokens(ModelId(model.id)))
            position.breaker = row.breakers.setdefault(model.id, position.breaker)
        position.replace_figures(figures)
        if figures.is_measured and model.id in row.timings:
            position.restore(row.timings.pop(model.id))
        self._note_standing(row, position)
        position.note_state(model.state, now_s)
        position.columns.write_specs(position.index, values)
        cachers = self._prefix_cachers.setdefault(model.id, set())
        cachers.add(row.id) if model.prefix_cache_tokens else cachers.discard(row.id)

    def _remove_position(self, row: NodeRow, model: str) -> None:
        position = row.positions.pop(model)
        if position.breaker.is_new and model not in row.own_active:
            row.breakers.pop(model, None)
        if len(row.breakers) > len(row.positions) + TIMINGS_MAX:
            del row.breakers[next(name for name in row.breakers if name not in row.positions)]
        self.newcomers.discard(model, row.id)
        if position.timed_jobs or position.reading.count:
            self._keep_timing(row, model, position.timing())
        self._prefix_cachers[model].discard(row.id)
        moved = position.columns.remove(position.index)
        if moved is not None:
            self._rows[moved].positions[model].index = position.index
        if not position.columns:
            del self._columns[model], self._prefix_cachers[model]
            self._version_floor = max(self._version_floor, position.columns.version + 1)
            self._shortlists.pop(model, None)
            self._typical.pop(model, None)
            self._typical_output.pop(ModelId(model), None)
            self.newcomers.forget(model)
            self.unseen.forget(model)
