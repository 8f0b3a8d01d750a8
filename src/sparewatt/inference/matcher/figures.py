"""From what a node reports to the numbers that a scan reads. Pure: rows and reports in, values in the order of `Field`.

A report must cost next to nothing (a hundred thousand nodes send one every few seconds), hence plain floats here.
"""

from __future__ import annotations

import math

from sparewatt.core.limits import LINK_JOBS_MAX, NODE_QUEUE_PER_SLOT
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.formula import SHORT_PROMPT_TOKENS
from sparewatt.inference.matcher.model import ColumnPosition, ModelFigures, NodeRow
from sparewatt.protocol.link.node_report import ModelReport, NodeSpecs, Speed

FAILURES_PRIOR, JOBS_PRIOR = 0.4, 20.0
STEP_PER_JOB_SHARE = 0.5
"""What a further job adds to a step, as a share of the step alone, on servers that were not measured under load."""
UNKNOWN_LARGE = 1e18
BANDWIDTH_MIN, BANDWIDTH_MAX = 1e6, 1e14
BACKLOG_S_MAX = 1e6
SLOWEST_TPS, FASTEST_TPS = 1e-3, 1e7
TOKENS_PER_PRICE = 1e6
_PER_SLOT = 1 + NODE_QUEUE_PER_SLOT
_CLOSED = -math.inf


def pace_of(row: NodeRow) -> float:
    """How many times slower than measured the node was seen to be. Never below 1."""
    return math.exp(max(0.0, row.slowness))


def failure_odds_of(row: NodeRow) -> float:
    failed = (row.jobs_failed + FAILURES_PRIOR) / (row.jobs_failed + row.jobs_done + JOBS_PRIOR)
    return failed / (1.0 - failed)


def active_bytes_of(row: NodeRow) -> int:
    """Weights of the models that jobs keep at work there: our own, and those that it says others sent."""
    used = {*row.own_active, *row.load.foreign_models} if row.load.foreign_models else row.own_active
    weights_bytes = 0
    for model in used:
        report = row.models.get(model)
        if report is not None:
            weights_bytes += report.weights_bytes
    return weights_bytes


def load_values(row: NodeRow, seat: ColumnPosition, unseen: float) -> tuple[float, ...]:
    """The first group of columns. `unseen`: jobs that other gateways may have sent since the last report.

    Reading and writing halve each other when both go on. A step is the measured one and what those there add to it: a
    little for each job, and what they make it read. Prompts take half of their share of the time from it. Written out
    in one piece, because a call for each term would take a tenth of the time that a report may take.
    """
    load, pace, active = row.load, row.pace, row.own_active
    is_measured, weights_bytes, room, _, _, step_s, per_job_s, bandwidth, token_s = seat.figures
    foreign, draining, heard_s = load.foreign, load.draining, row.last_heard_s
    there = row.own_jobs + foreign
    jobs = there + unseen
    kv_bytes, kv_capacity = row.own_kv_bytes + load.foreign_kv_bytes, load.kv_capacity_bytes
    kv_read, kv_free = kv_bytes, UNKNOWN_LARGE
    if kv_capacity is not None:
        kv_read, kv_free = min(kv_bytes, kv_capacity), kv_capacity - kv_bytes
    read_bytes = kv_read + load.foreign_active_bytes + row.active_bytes
    if (active and seat.model in active) or seat.model in load.foreign_models:
        read_bytes -= weights_bytes
    if room > LINK_JOBS_MAX:
        room = min(room, LINK_JOBS_MAX + foreign)
    is_open = there < room and row.connected and not draining and is_measured
    halved = 2.0 if jobs > 0.5 else 1.0
    share, backlog_s = load.prefill_share, load.foreign_backlog_s
    if not (0.0 <= share <= 1.0 and 0.0 <= backlog_s <= BACKLOG_S_MAX):
        share, backlog_s = _within(share, 1.0), _within(backlog_s, BACKLOG_S_MAX)
    slower = pace / (1.0 - share * 0.5) if share else pace
    backlog_s += row.own_backlog_s
    return (
        heard_s if is_open else _CLOSED,
        backlog_s * halved * pace,
        halved,
        (step_s + per_job_s * jobs + read_bytes / bandwidth) * slower,
        token_s * slower,
        jobs,
        kv_free,
        room + unseen,
        heard_s,
        1.0 if draining else 0.0,
    )


def record_values(row: NodeRow, seat: ColumnPosition) -> tuple[float, ...]:
    """The second group."""
    return (
        row.connected,
        row.rtt_s,
        seat.figures.read_fixed_s * row.pace,
        seat.figures.read_token_s * row.pace,
        failure_odds_of(row),
        row.suspect_until_s,
        row.strain_max,
    )


def _within(value: float, most: float) -> float:
    """The value between nothing and the most there can be. What is no number counts as nothing."""
    return value if 0.0 <= value <= most else most if value > most else 0.0


def specs_values(specs: NodeSpecs, model: ModelReport) -> tuple[ModelFigures, tuple[float, ...]]:
    """What follows from specs alone: figures, and the third group of columns."""
    figures = _figures(specs, model)
    values = (
        model.load_s,
        figures.per_job_s,
        figures.token_s,
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
    speed = model.measured if model.measured and _is_possible(model.measured) else None
    prefill_tps = speed.prefill_tps if speed else SLOWEST_TPS
    step_s = 1.0 / (speed.decode_tps if speed else SLOWEST_TPS)
    per_job_s = speed.step_per_job_s if speed and speed.step_per_job_s is not None else STEP_PER_JOB_SHARE * step_s
    derived = max(BANDWIDTH_MIN, model.weights_bytes / step_s) if model.weights_bytes else UNKNOWN_LARGE
    bandwidth = min(derived if specs.bandwidth_bytes_s is None else specs.bandwidth_bytes_s, UNKNOWN_LARGE)
    return ModelFigures(
        is_measured=speed is not None,
        weights_bytes=model.weights_bytes,
        read_fixed_s=max(speed.ttft_s if speed else 0.0, SHORT_PROMPT_TOKENS / prefill_tps),
        read_token_s=1.0 / prefill_tps,
        room_jobs=specs.slots * _PER_SLOT,
        step_s=step_s,
        per_job_s=per_job_s,
        bandwidth=bandwidth,
        token_s=model.kv_bytes_per_token / bandwidth if bandwidth > 0 else 0.0,
    )


def _fits_tokens(specs: NodeSpecs, model: ModelReport) -> float:
    """Whole tokens: a job that fits to the byte fits."""
    spare_bytes = specs.vram_bytes - model.weights_bytes
    if model.state == "warm":
        return math.inf
    if spare_bytes < 0 or model.kv_bytes_per_token <= 0:
        return math.inf if spare_bytes >= 0 else -1.0
    return float(spare_bytes // model.kv_bytes_per_token)


def _is_possible(speed: Speed) -> bool:
    return all(SLOWEST_TPS <= tps <= FASTEST_TPS for tps in (speed.prefill_tps, speed.decode_tps))


UNUSABLE = specs_values(NodeSpecs("?", "?", "?", 0, 0, 0.0, 0, 1, "?", "?"), ModelReport("?", "on_disk", 0, 0, 0, 0))
"""What counts for a report with a figure that cannot be (no number, negative, endless): as if never measured."""
