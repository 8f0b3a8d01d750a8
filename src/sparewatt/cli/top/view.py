"""What `sparewatt top` shows, computed from the gateway's pulses: rates and percentiles are differences of two pulses.

Pure: the time is that of the pulses. `TopView` is also what `top --json` prints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from sparewatt.protocol.api.feed import NodeStateName
from sparewatt.protocol.api.network import NetworkOverview
from sparewatt.protocol.api.nodes import Node
from sparewatt.protocol.api.operations import Pulse, PulseModel, PulseNode

RATE_WINDOW_S = 10.0
"""Rates are averages over this time: a number that changes every second cannot be read."""
ERROR_WINDOW_S = 60.0
"""Errors and percentiles are over a minute, since there are fewer of them."""
PULSES_MAX = 600
ERRORS_MAX = 6


class FirstTokenPercentiles(msgspec.Struct):
    p50: float | None = None
    p95: float | None = None


class TopErrorRow(msgspec.Struct):
    code: str
    count: int
    """In the last minute."""


class TopModelRow(msgspec.Struct):
    id: str
    nodes: int
    warm: int
    running: int | None = None
    waiting: int | None = None
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    failed: int | None = None
    """In the last minute, by the network's fault."""
    first_token_ms: FirstTokenPercentiles = msgspec.field(default_factory=FirstTokenPercentiles)


class TopNodeRow(msgspec.Struct):
    id: str
    name: str
    state: str
    gpu: str
    running: int
    queued: int
    slots: int
    tokens_per_s: float | None = None
    jobs_done: int = 0
    jobs_failed: int = 0
    temperature_c: float | None = None
    power_watts: float | None = None
    utilisation: float | None = None
    paused: str | None = None


class TopView(msgspec.Struct):
    """One screen. None is unknown: a rate before the second pulse, or a figure that only operators get."""

    at: float
    gateway: str
    is_operator: bool
    nodes: dict[NodeStateName, int]
    gpus: int
    vram_gb: int
    running: int
    tokens_per_s: float | None
    waiting: int | None = None
    requests_per_s: float | None = None
    first_token_ms: FirstTokenPercentiles = msgspec.field(default_factory=FirstTokenPercentiles)
    errors: list[TopErrorRow] = []
    models: list[TopModelRow] = []
    busiest: list[TopNodeRow] = []
    troubled: list[TopNodeRow] = []


class PulseWindow:
    """The pulses of the last minute. It is emptied when the gateway restarts: its counts begin again at zero."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._pulses: deque[Pulse] = deque(maxlen=PULSES_MAX)

    def update(self, pulse: Pulse) -> TopView:
        if self._pulses and (self._pulses[-1].instance != pulse.instance or pulse.at < self._pulses[-1].at):
            self._pulses.clear()
        self._pulses.append(pulse)
        while pulse.at - self._pulses[0].at > ERROR_WINDOW_S:
            self._pulses.popleft()
        return self._view_between(self._since(RATE_WINDOW_S), self._pulses[0], pulse)

    def _since(self, span_s: float) -> Pulse:
        now = self._pulses[-1].at
        return next(pulse for pulse in self._pulses if now - pulse.at <= span_s)

    def _view_between(self, recent: Pulse, minute: Pulse, now: Pulse) -> TopView:
        """Rates since the pulse `recent`; errors and percentiles since `minute`."""
        span_s = now.at - recent.at
        models = [_model_row(model, recent, minute, now) for model in now.models]
        errors = {code: count - minute.errors.get(code, 0) for code, count in now.errors.items()}
        frequent = sorted(((n, code) for code, n in errors.items() if n > 0), key=lambda error: (-error[0], error[1]))
        return TopView(
            at=now.at,
            gateway=self._gateway,
            is_operator=True,
            nodes=now.totals.nodes,
            gpus=now.totals.gpus,
            vram_gb=now.totals.vram_gb,
            running=now.running,
            waiting=now.waiting,
            requests_per_s=_per_s(_requests(now.models) - _requests(recent.models), span_s),
            tokens_per_s=_per_s(now.tokens_written - recent.tokens_written, span_s),
            first_token_ms=_first_token(now.models, minute.models, now.first_token_bounds_s),
            errors=[TopErrorRow(code, count) for count, code in frequent[:ERRORS_MAX]],
            models=sorted(models, key=lambda row: (-(row.requests_per_s or 0.0), -(row.running or 0), row.id)),
            busiest=_node_rows(now.busiest, recent, now),
            troubled=_node_rows(now.troubled, recent, now),
        )


def public_view(network: NetworkOverview, gateway: str, nodes: Sequence[TopNodeRow] = ()) -> TopView:
    """What is public: totals, and with an API key the nodes without their sensors."""
    totals = network.totals
    healthy = {"online", "busy"}
    return TopView(
        at=network.at,
        gateway=gateway,
        is_operator=False,
        nodes=totals.nodes,
        gpus=totals.gpus,
        vram_gb=totals.vram_gb,
        running=totals.jobs,
        # The gateway rounds both to integers; `top --json` prints floats, as it does for operators.
        tokens_per_s=float(totals.tokens_per_s),
        first_token_ms=FirstTokenPercentiles(None if totals.first_token_ms is None else float(totals.first_token_ms)),
        models=[TopModelRow(model.id, model.nodes, model.warm) for model in network.models],
        busiest=sorted((node for node in nodes if node.state in healthy), key=lambda node: -node.running),
        troubled=[node for node in nodes if node.state not in healthy],
    )


def _model_row(model: PulseModel, recent: Pulse, minute: Pulse, now: Pulse) -> TopModelRow:
    span_s = now.at - recent.at
    before = [each for each in recent.models if each.id == model.id]
    minute_before = [each for each in minute.models if each.id == model.id]
    tokens_before = sum(each.completion_tokens for each in before)
    failed_before = sum(each.requests.get("failed", 0) for each in minute_before)
    return TopModelRow(
        id=model.id,
        nodes=model.nodes,
        warm=model.warm,
        running=model.running,
        waiting=model.waiting,
        requests_per_s=_per_s(_requests([model]) - _requests(before), span_s),
        tokens_per_s=_per_s(model.completion_tokens - tokens_before, span_s),
        failed=max(0, model.requests.get("failed", 0) - failed_before),
        first_token_ms=_first_token([model], minute_before, now.first_token_bounds_s),
    )


def _node_rows(nodes: Iterable[PulseNode], recent: Pulse, now: Pulse) -> list[TopNodeRow]:
    before = {node.id: node.tokens for node in (*recent.busiest, *recent.troubled)}
    span_s = now.at - recent.at
    rates = ((node, _per_s(node.tokens - before.get(node.id, 0), span_s)) for node in nodes)
    return [node_row(node, tokens_per_s=rate if node.id in before else None) for node, rate in rates]


def node_row(node: PulseNode | Node, **computed: object) -> TopNodeRow:
    """The fields of a node that the screen shows, by their names, and those that are computed."""
    return msgspec.structs.replace(msgspec.convert(node, TopNodeRow, from_attributes=True), **computed)


def _requests(models: Iterable[PulseModel]) -> int:
    return sum(sum(model.requests.values()) for model in models)


def _per_s(increase: float, span_s: float) -> float | None:
    """None for a single pulse. A count that fell was corrected, which is no negative rate."""
    return max(0.0, increase) / span_s if span_s > 0 else None


def _first_token(
    now: Sequence[PulseModel], before: Sequence[PulseModel], bounds_s: Sequence[float]
) -> FirstTokenPercentiles:
    """Percentiles of the time to the first token, over the histograms of all these models."""
    counts = [0] * (len(bounds_s) + 1)
    for sign, models in ((1, now), (-1, before)):
        for model in models:
            for bucket, count in enumerate(model.first_token_counts[: len(counts)]):
                counts[bucket] += sign * count
    counts = [max(0, count) for count in counts]
    return FirstTokenPercentiles(p50=_percentile_ms(counts, bounds_s, 0.5), p95=_percentile_ms(counts, bounds_s, 0.95))


def _percentile_ms(counts: Sequence[int], bounds_s: Sequence[float], share: float) -> float | None:
    """Interpolated within its bucket. The last bucket has no upper bound: its result is its lower one."""
    rank, cumulative = share * sum(counts), 0
    for bucket, count in enumerate(counts[: len(bounds_s)]):
        if count and cumulative + count >= rank:
            low_s = bounds_s[bucket - 1] if bucket else 0.0
            return 1000 * (low_s + (bounds_s[bucket] - low_s) * (rank - cumulative) / count)
        cumulative += count
    return 1000 * bounds_s[-1] if sum(counts) and bounds_s else None
