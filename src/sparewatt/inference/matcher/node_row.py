"""One node as this gateway sees it: its reports, its record, and the numbers that a scan reads of it. Pure.

`load_values`, `record_values` and `specs_values` turn a row into the three groups of `ColumnField`. A report must cost
next to nothing (100,000 nodes send one every few seconds), hence plain floats here.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.lessons import ENOUGH, Lessons
from sparewatt.core.limits import LINK_JOBS_MAX, NODE_QUEUE_PER_SLOT
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.circuit_breaker import CircuitBreaker
from sparewatt.inference.matcher.columns import NodeColumns, Standing
from sparewatt.inference.matcher.newcomers import FIRST_JOBS_MAX, TIMED_JOBS
from sparewatt.policy.gpu_figures import fp16_tflops_of, memory_bandwidth_of
from sparewatt.policy.model_names.experts import read_share
from sparewatt.protocol.link.node_report import ModelReport, ModelState, NodeLoad, NodeSpecs, Speed

FAILURES_PRIOR, JOBS_PRIOR = 0.4, 20.0
STEP_PER_JOB_SHARE = 0.05
"""What a further job adds to a decode step, as a share of the step, on servers that were not measured under load."""
PREFILL_PACE, DECODE_PACE = 0.9, 0.1
"""Of a server that was not measured with a prompt beside answers: it gives the prompt nearly all, as they all do."""
SHARE_AHEAD = 0.5
"""Of the share of the last seconds that went into prompts, what is expected of the next: bursts end."""
OVERDUE_SHARE = 0.125
"""Prompts that take longer than expected are expected to need this share of their time still."""
HIDDEN_TOKENS, HIDDEN_SHARE = 8000.0, 0.05
"""A context of so many tokens that shows no cost in a measurement may still add this share to a step."""
REFERENCE_TOKENS, REFERENCE_STEPS = 1000.0, 200.0
"""The job by which speeds are compared and remembered."""
SLOWER_BELIEVED = 2.0 / 3.0
"""A node that says it has become slower than this share of its speed is believed at once: its word costs it jobs."""
STEPS_AT_ONCE_MAX = 4.0
"""Tokens that a step may write. An answer that came faster was not written by this model on this card."""
STEPS_JUDGED_MIN = 16
"""A shorter answer may come in one piece, from whoever had it buffered."""
FASTEST_CARD = 8e12
"""Bytes per second: the fastest memory of the data sheets."""
CARDS_MAX = 16
"""Cards that can work on one step together."""
TERA, FEWER_BITS = 1e12, 2.0
"""Cards compute twice as fast with eight bits as with sixteen."""
FASTER_MAX = 4.0
"""How many times faster than it was measured a node may be believed to be, where its card is not known."""
UNKNOWN_LARGE = 1e18
BANDWIDTH_MIN = 1e6
BACKLOG_S_MAX = 1e6
SLOWEST_TPS, FASTEST_TPS = 1e-3, 1e7
TOKENS_PER_PRICE = 1e6
_JOBS_PER_SLOT = 1 + NODE_QUEUE_PER_SLOT


class NodeState(enum.Enum):
    ONLINE = "online"
    BUSY = "busy"
    SUSPECT = "suspect"
    OFFLINE = "offline"
    DRAINING = "draining"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class HealthRules:
    """After how much silence a node is suspect and offline. NeuralGrid's values are 30 s, 3 and 3."""

    heartbeat_s: float = 5.0
    suspect_after_missed: int = 2
    offline_after_missed: int = 3
    grace_s: float = 0.5

    @property
    def suspect_after_s(self) -> float:
        return self.heartbeat_s * self.suspect_after_missed + self.grace_s

    @property
    def offline_after_s(self) -> float:
        return self.heartbeat_s * self.offline_after_missed + self.grace_s


class ModelFigures(NamedTuple):
    """What a model does on the node, as measured there."""

    is_measured: bool
    weights_bytes: float
    jobs_max: int
    """How many jobs the node may run and queue, by its slots."""
    prefill_fixed_s: float
    prefill_token_s: float
    prefill_square_s: float
    read_slower: float
    """How many times longer a prompt takes beside answers."""
    stall_share: float
    """What an answer loses of its time while a prompt is read."""
    step_s: float
    per_job_s: float
    bandwidth: float
    token_s: float
    """What one token of context adds to a decode step."""
    faster_max: float
    """How many times faster than measured it can be, by its card's memory bandwidth."""
    fastest_step_s: float = 0.0
    """What no card beats, or its own if that is known."""

    def can_write(self, steps: float, within_s: float) -> bool:
        """Whether so many steps are possible in this time; several tokens a step are, as with speculative decoding."""
        return steps < STEPS_JUDGED_MIN or within_s * STEPS_AT_ONCE_MAX >= steps * self.fastest_step_s

    def prefill_s(self, tokens: float, cached: float = 0.0) -> float:
        """Seconds to read a prompt on an idle node, of which some tokens are cached."""
        read = tokens - cached
        return self.prefill_fixed_s + read * (self.prefill_token_s + (tokens + cached) * self.prefill_square_s)


LOWEST_TIER = "community"
"""The tier of every node until its record, or an auditor, says more."""


class VerifiedFacts(NamedTuple):
    """What a policy can look at that is not the node's own word. None: unknown."""

    uptime: float | None = None
    compliance: frozenset[str] = frozenset()
    attested_by: frozenset[str] = frozenset()
    tier: str = LOWEST_TIER


NOTHING_VERIFIED = VerifiedFacts()


class Timing(NamedTuple):
    """How fast a model is on a node by this network's own timing, whatever the node says: of lasting value."""

    read_s: float
    """Seconds for a prompt of REFERENCE_TOKENS on the idle node."""
    step_s: float
    """Seconds for a decoding step alone."""
    reads: int
    writes: int
    """Lessons behind the two."""
    jobs: int
    """Whole answers that were timed."""


@dataclass(slots=True)
class ColumnPosition:
    """One of a node's models: where it is in that model's columns, and what its jobs have taught about it."""

    model: str
    columns: NodeColumns
    index: int
    figures: ModelFigures
    output_tokens: float = 0.0
    """How long its answers usually are."""
    reading: Lessons = field(default_factory=Lessons)
    writing: Lessons = field(default_factory=Lessons)
    steps: float = 0.0
    """Decoding steps that its figures allowed since it came, in the company that it had."""
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    timed_jobs: int = 0
    """Whole answers that gateways have timed."""
    cold_jobs: int = 0
    """Of its jobs, those for which the node said that the model had to be loaded."""
    known: ModelFigures | None = None
    """The last figures that were measured, to which the lessons are relative."""
    loading_from_s: float | None = None
    """Since when the node says that it loads the model."""
    reading_least: float = 0.0
    writing_least: float = 0.0
    """How many times slower than its figures it counts at the least, while too few jobs have taught the truth."""

    @property
    def is_timed(self) -> bool:
        return self.timed_jobs >= TIMED_JOBS

    @property
    def reading_factor(self) -> float:
        """How many times longer a prompt takes than its figures say."""
        lessons = self.reading
        return max(lessons.factor, self.reading_least) if lessons.count < ENOUGH else lessons.factor

    @property
    def writing_factor(self) -> float:
        lessons = self.writing
        return max(lessons.factor, self.writing_least) if lessons.count < ENOUGH else lessons.factor

    def timing(self) -> Timing:
        figures, reading, writing = self.known or self.figures, self.reading, self.writing
        return Timing(
            figures.prefill_s(REFERENCE_TOKENS) * reading.factor,
            figures.step_s * writing.factor,
            reading.count,
            writing.count,
            self.timed_jobs,
        )

    def restore(self, timing: Timing) -> None:
        """Take up what was learned before, relative to the figures that the node has now."""
        read_s, step_s = self.figures.prefill_s(REFERENCE_TOKENS), self.figures.step_s
        self.reading = Lessons.restored(factor=timing.read_s / read_s, count=timing.reads, amount=read_s)
        self.writing = Lessons.restored(factor=timing.step_s / step_s, count=timing.writes, amount=REFERENCE_STEPS)
        self.timed_jobs = timing.jobs
        self.known = self.figures

    def note_state(self, state: ModelState, now_s: float) -> None:
        if state != "loading":
            self.loading_from_s = None
        elif self.loading_from_s is None:
            self.loading_from_s = now_s

    def forget(self) -> None:
        """It was caught: what was timed of it is worth nothing."""
        self.reading, self.writing, self.timed_jobs = Lessons(), Lessons(), 0

    def replace_figures(self, figures: ModelFigures) -> None:
        """The node says something else of its speed. What was learned stays, but for a word that it is much slower."""
        self.figures = figures
        if not figures.is_measured:
            return
        before, self.known = self.known, figures
        if before is None:
            return
        faster_read = before.prefill_s(REFERENCE_TOKENS) / figures.prefill_s(REFERENCE_TOKENS)
        faster_step = before.step_s / figures.step_s
        if self.reading.count and faster_read != 1.0 and faster_read > SLOWER_BELIEVED:
            self.reading.scale(faster_read)
        if self.writing.count and faster_step != 1.0 and faster_step > SLOWER_BELIEVED:
            self.writing.scale(faster_step)

    def limit(self, typical: tuple[float, float] | None) -> None:
        """Count as no faster than this: seconds for a prompt of REFERENCE_TOKENS, and for a step."""
        self.reading_least = self.writing_least = 0.0
        if typical is not None:
            self.reading_least = typical[0] / self.figures.prefill_s(REFERENCE_TOKENS)
            self.writing_least = typical[1] / self.figures.step_s


@dataclass(slots=True)
class NodeRow:
    """Written by the table only."""

    id: NodeId
    specs: NodeSpecs
    owner: AccountId | None = None
    index: int = 0
    hash: int = 0
    models: dict[str, ModelReport] = field(default_factory=dict)
    positions: dict[str, ColumnPosition] = field(default_factory=dict)
    """By model."""
    timings: dict[str, Timing] = field(default_factory=dict)
    """Of models that it does not have now: dropping a model and bringing it back does not wash them off."""
    load: NodeLoad = field(default_factory=NodeLoad)
    is_loading: bool = False
    """Whether it loads one of its models."""
    foreign_at_s: float = 0.0
    """When it last reported more jobs of others."""
    connected: bool = False
    last_heard_s: float = 0.0
    last_seen_unix_s: float | None = None
    rtt_s: float = 0.0
    overhead_s: float = 0.0
    """Learned: what a first token takes beyond the round trip and the prompt's prefill."""
    breakers: dict[str, CircuitBreaker] = field(default_factory=dict)
    """By model, also of some that it no longer has: dropping a model does not wash off its failures."""
    suspect_until_s: float = 0.0
    """Until when one of its breakers is open."""
    own_jobs: int = 0
    own_unread_s: float = 0.0
    """Seconds of prefill of the prompts sent from here whose first token has not come."""
    own_read_from_s: float = 0.0
    """When the first of them got its turn."""
    read_at_s: float = 0.0
    """When the last first token came."""
    is_read_undisturbed: bool = False
    """Whether nothing else kept the server busy or full meanwhile."""
    stepped_at_s: float = 0.0
    """Up to when the steps of its models are counted."""
    own_kv_bytes: float = 0.0
    own_active: dict[str, int] = field(default_factory=dict)
    """Jobs sent from here, by model."""
    jobs_done: int = 0
    verified: VerifiedFacts = NOTHING_VERIFIED
    """What the network knows of it, whatever it says."""
    is_region_refuted: bool = False
    """Whether the measured round trip does not fit the region that it names."""
    is_suspended: bool = False
    """Whether a check of its answers failed: it gets checks alone."""
    served_before: bool = False
    """Whether it finished a job in an earlier run."""
    jobs_failed: int = 0
    record_done: float = 0.0
    """Of its record in earlier eras, which all gateways share, as if it were so many jobs of this process."""
    record_failed: float = 0.0
    active_bytes: int = 0
    """Of `active_bytes_of`; stored because every report needs it."""

    @property
    def has_served(self) -> bool:
        return self.served_before or self.jobs_done > 0

    @property
    def jobs_now(self) -> int:
        """Jobs sent from here (exact, counted at the pick) and by others (as last reported)."""
        return self.own_jobs + self.load.foreign


# health: a closed socket is the signal; missed heartbeats catch the connections that died silently


def is_offline(row: NodeRow, *, now_s: float, rules: HealthRules) -> bool:
    return not row.connected or now_s - row.last_heard_s >= rules.offline_after_s


def is_suspect(row: NodeRow, *, now_s: float, rules: HealthRules) -> bool:
    """Silent for a while, or the breaker of one of its models is open: used only if no other node can be."""
    return now_s - row.last_heard_s >= rules.suspect_after_s or now_s < row.suspect_until_s


def state_of(row: NodeRow, *, now_s: float, rules: HealthRules) -> NodeState:
    if is_offline(row, now_s=now_s, rules=rules):
        return NodeState.OFFLINE
    if row.load.draining:
        return NodeState.DRAINING if row.load.paused is None else NodeState.PAUSED
    if is_suspect(row, now_s=now_s, rules=rules):
        return NodeState.SUSPECT
    return NodeState.BUSY if row.jobs_now >= row.specs.slots else NodeState.ONLINE


def offline_rows(rows: Iterable[NodeRow], *, now_s: float, rules: HealthRules) -> tuple[list[NodeRow], float]:
    """The nodes that are offline, and when the next of the others will be if it stays silent."""
    offline, oldest_s = [], now_s
    for row in rows:
        if row.last_heard_s < oldest_s or not row.connected:
            if is_offline(row, now_s=now_s, rules=rules):
                offline.append(row)
            else:
                oldest_s = row.last_heard_s
    return offline, oldest_s + rules.offline_after_s


# the row as numbers


def failure_odds_of(row: NodeRow) -> float:
    broken = row.jobs_failed + row.record_failed
    failed = (broken + FAILURES_PRIOR) / (broken + row.jobs_done + row.record_done + JOBS_PRIOR)
    return failed / (1.0 - failed)


def active_bytes_of(row: NodeRow) -> int:
    """Weights that every step reads: of the loaded models that have jobs, sent from here or reported by others.

    Jobs of a model that is still being loaded wait; taken to be read, it would make the others look fast.
    """
    used = {*row.own_active, *row.load.foreign_models} if row.load.foreign_models else row.own_active
    weights_bytes = 0
    for model in used:
        report = row.models.get(model)
        if report is not None and report.state == "warm":
            weights_bytes += report.weights_bytes
    return weights_bytes


def is_read_now(row: NodeRow, model: str) -> bool:
    """Whether the weights of a model that the node has are part of `active_bytes_of`."""
    has_jobs = model in row.own_active or model in row.load.foreign_models
    return has_jobs and row.models[model].state == "warm"


def load_left_s_of(row: NodeRow, position: ColumnPosition) -> float:
    """Of a model that is being loaded, as of the node's last report."""
    began_s = row.last_heard_s if position.loading_from_s is None else position.loading_from_s
    return row.models[position.model].load_left_s(row.last_heard_s - began_s)


def step_s_of(row: NodeRow, position: ColumnPosition, jobs: float) -> float:
    """A decoding step by the node's figures in the company of so many jobs, undisturbed by prompts.

    The measured step, a little for each job, and the memory that their contexts and other models make it read.
    """
    load, figures = row.load, position.figures
    kv_bytes = row.own_kv_bytes + load.foreign_kv_bytes
    if load.kv_capacity_bytes is not None:
        kv_bytes = min(kv_bytes, load.kv_capacity_bytes)
    read_bytes = kv_bytes + load.foreign_active_bytes + row.active_bytes
    if is_read_now(row, position.model):
        read_bytes -= figures.weights_bytes
    return figures.step_s + figures.per_job_s * jobs + read_bytes / figures.bandwidth


def load_values(row: NodeRow, position: ColumnPosition) -> tuple[float, ...]:
    """The first group of columns.

    Answers stall while prompts are read, by the share of the time in which that happens.
    """
    load, figures, heard_s = row.load, position.figures, row.last_heard_s
    foreign, draining, slots = load.foreign, load.draining, row.specs.slots
    jobs = row.own_jobs + foreign
    kv_free = UNKNOWN_LARGE
    if load.kv_capacity_bytes is not None:
        kv_free = load.kv_capacity_bytes - row.own_kv_bytes - load.foreign_kv_bytes
    jobs_max = figures.jobs_max
    if jobs_max > LINK_JOBS_MAX:
        jobs_max = min(jobs_max, LINK_JOBS_MAX + foreign)
    is_open = jobs < jobs_max and row.connected and not draining and figures.is_measured
    share, backlog_s = load.prefill_share, load.foreign_backlog_s
    if not (0.0 <= share <= 1.0 and 0.0 <= backlog_s <= BACKLOG_S_MAX):
        share, backlog_s = _clamp(share, 1.0), _clamp(backlog_s, BACKLOG_S_MAX)
    slower = position.writing_factor / (1.0 - SHARE_AHEAD * share * figures.stall_share)
    step_s = step_s_of(row, position, jobs) * slower
    read_slower = figures.read_slower if jobs else 1.0
    unread_s = row.own_unread_s * read_slower
    beyond = jobs - slots + 1
    others_read = row.own_active or load.foreign_models or load.foreign_active_bytes
    is_active = not others_read or position.model in row.own_active or position.model in load.foreign_models
    return (
        heard_s if is_open else -math.inf,
        row.own_read_from_s + unread_s,
        unread_s * OVERDUE_SHARE,
        heard_s + backlog_s * read_slower,
        position.output_tokens * step_s * beyond / slots if beyond > 0 else 0.0,
        read_slower,
        step_s,
        figures.token_s * slower,
        figures.per_job_s if is_active else figures.per_job_s + figures.weights_bytes / figures.bandwidth,
        jobs,
        kv_free,
        jobs_max,
        heard_s,
        1.0 if draining else 0.0,
    )


def record_values(row: NodeRow, position: ColumnPosition) -> tuple[float, ...]:
    """The second group."""
    reading = position.reading_factor
    if row.is_suspended:
        standing = Standing.SUSPENDED
    elif position.timed_jobs >= TIMED_JOBS:
        standing = Standing.TIMED
    elif position.breaker.failures_in_row or row.own_active.get(position.model, 0) >= FIRST_JOBS_MAX:
        standing = Standing.WAITING
    else:
        standing = Standing.NEWCOMER
    return (
        row.connected,
        row.rtt_s + row.overhead_s,
        position.figures.prefill_fixed_s * reading,
        position.figures.prefill_token_s * reading,
        position.figures.prefill_square_s * reading,
        failure_odds_of(row),
        position.breaker.shut_until_s,
        standing,
    )


def _clamp(value: float, most: float) -> float:
    """The value between 0 and `most`; 0 if it is not a number."""
    return value if 0.0 <= value <= most else most if value > most else 0.0


def specs_values(specs: NodeSpecs, model: ModelReport) -> tuple[ModelFigures, tuple[float, ...]]:
    """What follows from specs alone: figures, and the third group of columns."""
    figures = _figures(specs, model)
    values = (
        model.load_s,
        figures.token_s,
        figures.stall_share,
        model.kv_bytes_per_token,
        model.prompt_price_nano / NANO_PER_USD / TOKENS_PER_PRICE,
        model.completion_price_nano / NANO_PER_USD / TOKENS_PER_PRICE,
        model.context_length or UNKNOWN_LARGE,
        _fits_tokens(specs, model),
        figures.is_measured,
        model.state == "warm",
        model.weights_bytes,
        specs.vram_bytes,
        figures.bandwidth,
        specs.tflops,
        specs.hourly_price_nano / NANO_PER_USD,
    )
    is_possible = figures.bandwidth >= BANDWIDTH_MIN and all(
        0.0 <= value <= UNKNOWN_LARGE for value in (*figures, *values[:7], *values[8:])
    )
    return (figures, values) if is_possible else UNUSABLE


def _figures(specs: NodeSpecs, model: ModelReport) -> ModelFigures:
    speed = model.measured if model.measured and _is_possible(model.measured) else UNMEASURED
    fastest_token_s, fastest_step_s = _fastest(specs, model)
    step_s = max(1.0 / speed.decode_tps, fastest_step_s)
    bandwidth = _bandwidth(specs, model, speed)
    return ModelFigures(
        is_measured=speed is not UNMEASURED,
        weights_bytes=model.weights_bytes,
        jobs_max=specs.slots * _JOBS_PER_SLOT,
        prefill_fixed_s=speed.ttft_s,
        prefill_token_s=max(1.0 / speed.prefill_tps, fastest_token_s),
        prefill_square_s=speed.prefill_square_s,
        read_slower=1.0 / (speed.prefill_pace or PREFILL_PACE),
        stall_share=1.0 - (speed.decode_pace or DECODE_PACE),
        step_s=step_s,
        per_job_s=speed.step_per_job_s if speed.step_per_job_s is not None else STEP_PER_JOB_SHARE * step_s,
        bandwidth=bandwidth,
        token_s=model.kv_bytes_per_token / bandwidth if bandwidth > 0 else 0.0,
        faster_max=min(FASTER_MAX, max(1.0, step_s / fastest_step_s)) if fastest_step_s else FASTER_MAX,
        fastest_step_s=fastest_step_s or read_share(model.id) * model.weights_bytes / (FASTEST_CARD * CARDS_MAX),
    )


def _bandwidth(specs: NodeSpecs, model: ModelReport, speed: Speed) -> float:
    """Bytes per second of decoding: by what a token of context was measured to add, the card, or a step alone.

    A step reads the weights, but may take long for other reasons: where contexts were measured to cost nothing that
    shows, that says more. A server that tells its weights must not look slower for it.
    """
    kv_bytes, per_token_s = model.kv_bytes_per_token, speed.step_per_token_s
    if per_token_s and kv_bytes:
        found = kv_bytes / per_token_s
    elif specs.bandwidth_bytes_s is not None:
        found = specs.bandwidth_bytes_s
    elif per_token_s is not None and kv_bytes:
        hidden = kv_bytes * HIDDEN_TOKENS / HIDDEN_SHARE
        found = max(BANDWIDTH_MIN, hidden * speed.decode_tps, model.weights_bytes * speed.decode_tps)
    else:
        found = max(BANDWIDTH_MIN, model.weights_bytes * speed.decode_tps) if model.weights_bytes else UNKNOWN_LARGE
    return min(found, UNKNOWN_LARGE)


def _fastest(specs: NodeSpecs, model: ModelReport) -> tuple[float, float]:
    """Seconds for a token of a prompt and for a step, which no card beats; zero where the card is not known.

    A step reads all weights that take part, and a token of a prompt needs two operations with each of them.
    """
    card, tflops = memory_bandwidth_of(specs.gpu), fp16_tflops_of(specs.gpu)
    if card is None or tflops is None:
        return 0.0, 0.0
    weights_bytes, cards = read_share(model.id) * model.weights_bytes, max(1, min(specs.gpu_count, CARDS_MAX))
    return weights_bytes / (tflops * TERA * cards * FEWER_BITS), weights_bytes / (card * cards)


def _fits_tokens(specs: NodeSpecs, model: ModelReport) -> float:
    """Whole tokens: a job that fits to the byte fits."""
    spare_bytes = specs.vram_bytes - model.weights_bytes
    if model.state == "warm":
        return math.inf
    if spare_bytes < 0 or model.kv_bytes_per_token <= 0:
        return math.inf if spare_bytes >= 0 else -1.0
    return float(spare_bytes // model.kv_bytes_per_token)


def _is_possible(speed: Speed) -> bool:
    tps, paces = (speed.prefill_tps, speed.decode_tps), (speed.prefill_pace, speed.decode_pace)
    return all(SLOWEST_TPS <= rate <= FASTEST_TPS for rate in tps) and all(p is None or 0.0 < p <= 1.0 for p in paces)


UNMEASURED = Speed(SLOWEST_TPS, SLOWEST_TPS)


UNUSABLE = specs_values(NodeSpecs("?", "?", "?", 0, 0, 0.0, 0, 1, "?", "?"), ModelReport("?", "on_disk", 0, 0, 0, 0))
"""Stands for a report with an impossible figure (not a number, negative, infinite): as if it was never measured."""
