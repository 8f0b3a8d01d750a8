"""The nodes as this gateway knows them, and the work it has sent them. In memory only; links and Postgres fill it.

A reservation counts a job at the moment of the pick, before the node has heard of it: without that, every job of a
burst would go to the same node. What observation teaches may only lower a node's speed, never raise it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sparewatt.core.ids import ModelId, NodeId
from sparewatt.core.limits import LINK_JOBS_MAX, NODE_QUEUE_PER_SLOT, NODES_MAX
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.entries import Entries, Field
from sparewatt.inference.matcher.formula import SHORT_PROMPT_TOKENS
from sparewatt.inference.matcher.hashing import hash_text
from sparewatt.inference.matcher.model import MatchJob, NodeRow
from sparewatt.inference.matcher.room import RoomCount
from sparewatt.protocol.node import ModelReport, NodeLoad, NodeSpecs, Speed

if TYPE_CHECKING:
    from sparewatt.inference.matcher.shortlist import Shortlist

SUSPECT_AFTER_FAILURE_S = 45.0
OUTPUT_TOKENS_DEFAULT = 256
OUTPUT_EWMA = 0.1
OUTPUT_TOKENS_LEARNED_MAX = 32_768
"""What one job can teach at most: the count is the node's own word, and it sizes everybody's next job."""
RTT_EWMA = 0.3

LEARN_AT_LEAST = 0.08
LESSON_MAX = 3.0
"""One observation may say that a node is twenty times slower than believed, not more."""
SLOWNESS_MAX = 16.0
"""Ten million times slower than it says: as far as the figures that a report may hold can lie."""
FAILURES_PRIOR, JOBS_PRIOR = 0.4, 20.0

STEP_PER_JOB_SHARE = 0.5
"""What a further job adds to a step, as a share of the step alone, on servers that were not measured under load."""
UNKNOWN_LARGE = 1e18
BANDWIDTH_MIN, BANDWIDTH_MAX = 1e6, 1e14
BACKLOG_S_MAX = 1e6
SLOWEST_TPS, FASTEST_TPS = 1e-3, 1e7
TOKENS_PER_PRICE = 1e6


@dataclass(slots=True)
class Reservation:
    """One job's place on one node. Released exactly once, however the job ends."""

    node_id: NodeId
    model: ModelId
    backlog_s: float
    kv_bytes: float
    made_at_s: float
    reading_prompt: bool = True
    released: bool = False


class NodeTable:
    def __init__(self, *, gateways: int = 1, nodes_max: int | None = None) -> None:
        self._rows: dict[NodeId, NodeRow] = {}
        self._by_index: list[NodeRow] = []
        self._open: dict[int, Reservation] = {}
        self._typical_output: dict[ModelId, float] = {}
        self._entries: dict[str, Entries] = {}
        self._in_flight: dict[str, int] = {}
        self._strain_per_job: dict[str, float] = {}
        self._unseen_weight = math.sqrt(gateways) - 1.0
        self._nodes_max = nodes_max
        self.shortlists: dict[str, Shortlist] = {}
        """Kept here for the matcher; it knows when they are old."""
        self.room = RoomCount()

    def __iter__(self) -> Iterator[NodeRow]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, node_id: NodeId) -> NodeRow | None:
        return self._rows.get(node_id)

    def entries(self, model: str) -> Entries | None:
        """The nodes that have a model, as columns."""
        return self._entries.get(model)

    def model_ids(self) -> set[str]:
        """Every model that a known node has, online or not."""
        return set(self._entries)

    # who is there

    def remember(self, node_id: NodeId, specs: NodeSpecs, *, last_seen_unix_s: float | None) -> None:
        """A node known from before this process started; offline until it dials in."""
        if node_id not in self._rows and len(self._rows) < (self._nodes_max or NODES_MAX):
            self._add(node_id, specs).last_seen_unix_s = last_seen_unix_s
            self.set_specs(node_id, specs)

    def connect(self, node_id: NodeId, specs: NodeSpecs, *, now_s: float) -> bool:
        """A node has dialled in. False if the table is full."""
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
        self._write_live(row)

    def _add(self, node_id: NodeId, specs: NodeSpecs) -> NodeRow:
        row = NodeRow(id=node_id, specs=specs, index=len(self._by_index), hash=hash_text(node_id))
        self._rows[node_id] = row
        self._by_index.append(row)
        return row

    # what they report

    def set_specs(self, node_id: NodeId, specs: NodeSpecs) -> None:
        row = self._rows[node_id]
        self.room.forget(row)
        row.specs = specs
        row.models = {model.id: model for model in specs.models}
        for gone in [model for model in row.places if model not in row.models]:
            self._leave(row, gone)
        for model in row.models.values():
            self._write_fixed(row, model)
        self._write_live(row)

    def set_load(self, node_id: NodeId, load: NodeLoad, *, now_s: float) -> None:
        row = self._rows[node_id]
        row.load = load
        row.last_heard_s = now_s
        row.own_since_report = 0
        self._write_live(row)

    def set_rtt(self, node_id: NodeId, rtt_s: float, *, now_s: float) -> None:
        row = self._rows[node_id]
        row.rtt_s = rtt_s if row.rtt_s == 0.0 else row.rtt_s + RTT_EWMA * (rtt_s - row.rtt_s)
        row.last_heard_s = now_s
        self._write_live(row)

    # what we send them

    def reserve(self, node_id: NodeId, job: MatchJob, *, now_s: float) -> Reservation:
        row = self._rows[node_id]
        model = row.models[job.model]
        tps = max(SLOWEST_TPS, model.measured.prefill_tps) if model.measured else SLOWEST_TPS
        held = Reservation(
            node_id,
            job.model,
            backlog_s=job.prompt_tokens / tps,
            kv_bytes=(job.prompt_tokens + job.output_tokens / 2) * model.kv_bytes_per_token,
            made_at_s=now_s,
        )
        self._open[id(held)] = held
        row.own_jobs += 1
        row.own_since_report += 1
        row.own_backlog_s += held.backlog_s
        row.own_kv_bytes += held.kv_bytes
        row.own_active[job.model] = row.own_active.get(job.model, 0) + 1
        self._in_flight[job.model] = self._in_flight.get(job.model, 0) + 1
        self._write_live(row)
        return held

    def prompt_read(self, held: Reservation) -> None:
        """The first token came: this prompt holds up nobody any more."""
        if held.reading_prompt and not held.released:
            held.reading_prompt = False
            row = self._rows[held.node_id]
            row.own_backlog_s = max(0.0, row.own_backlog_s - held.backlog_s)
            self._write_live(row)

    def release(self, held: Reservation) -> None:
        if held.released:
            return
        self.prompt_read(held)
        held.released = True
        self._open.pop(id(held), None)
        row = self._rows[held.node_id]
        row.own_jobs -= 1
        row.own_since_report = max(0, row.own_since_report - 1)
        row.own_kv_bytes = max(0.0, row.own_kv_bytes - held.kv_bytes) if row.own_jobs else 0.0
        row.own_backlog_s = row.own_backlog_s if row.own_jobs else 0.0
        _count_down(row.own_active, held.model)
        _count_down(self._in_flight, held.model)
        self._write_live(row)

    def expire_reservations(self, *, older_than_s: float, now_s: float) -> int:
        """Give back places that were never released. Zero unless there is a bug; bounded damage if there is."""
        leaked = [held for held in self._open.values() if now_s - held.made_at_s > older_than_s]
        for held in leaked:
            self.release(held)
        return len(leaked)

    # what that taught us

    def note_success(self, node_id: NodeId, *, model: ModelId, output_tokens: int | None) -> None:
        row = self._rows[node_id]
        row.jobs_done += 1
        row.suspect_until_s = 0.0
        if output_tokens is not None:
            before = self._typical_output.get(model, OUTPUT_TOKENS_DEFAULT)
            learned = min(max(output_tokens, 0), OUTPUT_TOKENS_LEARNED_MAX)
            self._typical_output[model] = before + OUTPUT_EWMA * (learned - before)
        self._write_live(row)

    def note_failure(self, node_id: NodeId, *, now_s: float) -> None:
        row = self._rows[node_id]
        row.jobs_failed += 1
        row.suspect_until_s = now_s + SUSPECT_AFTER_FAILURE_S
        self._write_live(row)

    def note_speed(self, node_id: NodeId, *, predicted_s: float, observed_s: float) -> None:
        """How long something took against what the node's own figures, uncorrected, predicted."""
        if not (predicted_s > 0 and observed_s > 0):
            return
        row = self._rows[node_id]
        seen = min(SLOWNESS_MAX, max(-LESSON_MAX, math.log(observed_s) - math.log(predicted_s)))
        lesson = min(LESSON_MAX, max(-LESSON_MAX, seen - row.slowness))
        row.slowness += lesson * max(LEARN_AT_LEAST, 1.0 / (2 + row.jobs_done))
        self._write_live(row)

    def typical_output_tokens(self, model: ModelId) -> int:
        return max(1, round(self._typical_output.get(model, OUTPUT_TOKENS_DEFAULT)))

    # demand

    def strain_of(self, model: str) -> float:
        """Demand over supply: jobs in flight, by weight (16 GB is 1), per TB/s of bandwidth that holds the model."""
        return self._in_flight.get(model, 0) * self._strain_per_job.get(model, 0.0)

    def refresh_strain(self) -> None:
        """Count the supply, and what each node is most wanted for. Cheap; called a few times a second."""
        self._strain_per_job = {model: _strain_per_job(entries) for model, entries in self._entries.items()}
        highest = np.zeros(len(self._by_index))
        for model, entries in self._entries.items():
            warm = entries.data[Field.WARM] != 0
            np.maximum.at(highest, entries.rows[warm], self.strain_of(model))
        for entries in self._entries.values():
            entries.data[Field.STRAIN_MAX] = highest[entries.rows]
        for row, strain in zip(self._by_index, highest.tolist(), strict=True):
            row.strain_max = strain

    # columns

    def _write_live(self, row: NodeRow) -> None:
        self.room.note(row)
        load = row.load
        speed = math.exp(-max(0.0, row.slowness))
        failed = (row.jobs_failed + FAILURES_PRIOR) / (row.jobs_failed + row.jobs_done + JOBS_PRIOR)
        used = {*row.own_active, *load.foreign_models} if load.foreign_models else row.own_active
        active = load.foreign_active_bytes + sum(
            row.models[model].weights_bytes for model in used if model in row.models
        )
        kv_bytes = row.own_kv_bytes + load.foreign_kv_bytes
        unseen = self._unseen_weight * row.own_since_report
        room = min(row.specs.slots * (1 + NODE_QUEUE_PER_SLOT), LINK_JOBS_MAX + load.foreign)
        kv_capacity = UNKNOWN_LARGE if load.kv_capacity_bytes is None else load.kv_capacity_bytes
        backlog_s = row.own_backlog_s + max(0.0, min(BACKLOG_S_MAX, load.foreign_backlog_s))
        for model, place in row.places.items():
            own = row.models[model].weights_bytes if model in used else 0
            self._entries[model].write_live(
                place,
                (
                    row.connected,
                    load.draining,
                    row.last_heard_s,
                    row.suspect_until_s,
                    row.rtt_s,
                    row.jobs_there + unseen,
                    backlog_s,
                    kv_bytes,
                    min(kv_bytes, kv_capacity),
                    active - own,
                    min(1.0, max(0.0, load.prefill_share)),
                    speed,
                    failed / (1.0 - failed),
                    row.strain_max,
                    room + unseen,
                    kv_capacity,
                ),
            )

    def _write_fixed(self, row: NodeRow, model: ModelReport) -> None:
        entries = self._entries.setdefault(model.id, Entries())
        if model.id not in row.places:
            row.places[model.id] = entries.add(row.id, row.hash, row.index)
        entries.write_fixed(row.places[model.id], fixed_values(row.specs, model))

    def _leave(self, row: NodeRow, model: str) -> None:
        place, entries = row.places.pop(model), self._entries[model]
        moved = entries.remove(place)
        if moved is not None:
            self._rows[moved].places[model] = place
        if not entries:
            del self._entries[model]


def _strain_per_job(entries: Entries) -> float:
    """Weights and whole MB/s, so that neither one odd report nor the order of the nodes moves the figure."""
    data = entries.data
    bandwidth = np.minimum(data[Field.BANDWIDTH], BANDWIDTH_MAX) * data[Field.WARM] * data[Field.CONNECTED]
    supply = float(np.sum(np.rint(bandwidth / 1e6))) / 1e6
    return float(np.median(data[Field.WEIGHTS_BYTES])) / 16e9 / max(supply, 1e-3)


def _count_down(counts: dict[str, int], name: str) -> None:
    left = counts.get(name, 0) - 1
    if left > 0:
        counts[name] = left
    else:
        counts.pop(name, None)


def fixed_values(specs: NodeSpecs, model: ModelReport) -> tuple[float, ...]:
    """The columns that follow from specs alone, in the order of `Field`."""
    speed = model.measured if model.measured and _is_possible(model.measured) else None
    prefill_tps = speed.prefill_tps if speed else SLOWEST_TPS
    step_s = 1.0 / (speed.decode_tps if speed else SLOWEST_TPS)
    per_job_s = speed.step_per_job_s if speed and speed.step_per_job_s is not None else STEP_PER_JOB_SHARE * step_s
    derived = max(BANDWIDTH_MIN, model.weights_bytes / step_s) if model.weights_bytes else UNKNOWN_LARGE
    bandwidth = derived if specs.bandwidth_bytes_s is None else specs.bandwidth_bytes_s
    values = (
        specs.vram_bytes,
        min(bandwidth, UNKNOWN_LARGE),
        specs.tflops,
        specs.hourly_price_nano / NANO_PER_USD,
        model.load_s,
        prefill_tps,
        max(speed.ttft_s if speed else 0.0, SHORT_PROMPT_TOKENS / prefill_tps),
        step_s,
        per_job_s,
        model.prompt_price_nano / NANO_PER_USD / TOKENS_PER_PRICE,
        model.completion_price_nano / NANO_PER_USD / TOKENS_PER_PRICE,
        model.weights_bytes,
        model.kv_bytes_per_token,
        model.context_length or UNKNOWN_LARGE,
        speed is not None,
        model.state == "warm",
    )
    is_possible = bandwidth >= BANDWIDTH_MIN and all(0.0 <= value <= UNKNOWN_LARGE for value in values)
    return values if is_possible else UNUSABLE


def _is_possible(speed: Speed) -> bool:
    return all(SLOWEST_TPS <= tps <= FASTEST_TPS for tps in (speed.prefill_tps, speed.decode_tps))


UNUSABLE = fixed_values(NodeSpecs("?", "?", "?", 0, 0, 0.0, 0, 1, "?", "?"), ModelReport("?", "on_disk", 0, 0, 0, 0))
"""What counts for a report with a figure that cannot be (no number, negative, endless): as if never measured."""
