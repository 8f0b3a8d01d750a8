"""Rates and percentiles out of counts that only grow: the difference of two pulses. Pure; time is what they say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from sparewatt.cli.top.view import (
    FirstTokenPercentiles,
    PublicNetwork,
    Pulse,
    PulseModel,
    PulseNode,
    TopErrorRow,
    TopModelRow,
    TopNodeRow,
    TopView,
)

RATE_WINDOW_S = 10.0
"""Rates are over this long: a number that jumps every second cannot be read."""
ERROR_WINDOW_S = 60.0
"""Errors and percentiles are over a minute: there are fewer of them."""
PULSES_MAX = 600
ERRORS_MAX = 6


class PulseWindow:
    """Remembers the pulses of the last minute. Another process's counts, or a restart, begin anew."""

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

    def _view_between(self, lately: Pulse, minute: Pulse, now: Pulse) -> TopView:
        before, earlier = _by_id(lately.models), _by_id(minute.models)
        models = [_model(each, before, earlier, lately, now) for each in now.models]
        passed_s = now.at - lately.at
        errors = _increases(now.errors, minute.errors)
        return TopView(
            at=now.at,
            gateway=self._gateway,
            is_operator=True,
            nodes=now.totals.nodes,
            gpus=now.totals.gpus,
            vram_gb=now.totals.vram_gb,
            running=now.running,
            waiting=now.waiting,
            requests_per_s=_per_s(_requests(now.models) - _requests(lately.models), passed_s),
            tokens_per_s=_per_s(now.tokens_written - lately.tokens_written, passed_s),
            first_token_ms=_first_token(_counts(now.models), _counts(minute.models), now.first_token_bounds_s),
            errors=[TopErrorRow(code, count) for code, count in errors[:ERRORS_MAX]],
            models=sorted(models, key=lambda line: (-(line.requests_per_s or 0.0), -(line.running or 0), line.id)),
            busiest=_nodes(now.busiest, lately, now),
            troubled=_nodes(now.troubled, lately, now),
        )


def public_view(network: PublicNetwork, gateway: str, nodes: Sequence[TopNodeRow] = ()) -> TopView:
    """What everybody may see: aggregates, and by a key the nodes without their sensors."""
    totals = network.totals
    is_well = {"online", "busy"}
    return TopView(
        at=network.at,
        gateway=gateway,
        is_operator=False,
        nodes=totals.nodes,
        gpus=totals.gpus,
        vram_gb=totals.vram_gb,
        running=totals.jobs,
        tokens_per_s=totals.tokens_per_s,
        first_token_ms=FirstTokenPercentiles(p50=totals.first_token_ms),
        models=[TopModelRow(model.id, model.nodes, model.warm) for model in network.models],
        busiest=sorted((node for node in nodes if node.state in is_well), key=lambda node: -node.running),
        troubled=[node for node in nodes if node.state not in is_well],
    )


def _by_id(models: Iterable[PulseModel]) -> dict[str, PulseModel]:
    return {model.id: model for model in models}


def _requests(models: Iterable[PulseModel]) -> int:
    return sum(sum(model.requests.values()) for model in models)


def _per_s(grown: float, passed_s: float) -> float | None:
    """None before the second look. A count that fell was corrected, not undone."""
    return max(0.0, grown) / passed_s if passed_s > 0 else None


def _increases(now: Mapping[str, int], before: Mapping[str, int]) -> list[tuple[str, int]]:
    """What came since, the most frequent first."""
    grown = {code: count - before.get(code, 0) for code, count in now.items()}
    return sorted(((code, n) for code, n in grown.items() if n > 0), key=lambda each: (-each[1], each[0]))


def _model(
    model: PulseModel, before: Mapping[str, PulseModel], earlier: Mapping[str, PulseModel], lately: Pulse, now: Pulse
) -> TopModelRow:
    nothing = PulseModel(model.id)
    was, minute = before.get(model.id, nothing), earlier.get(model.id, nothing)
    passed_s = now.at - lately.at
    return TopModelRow(
        id=model.id,
        nodes=model.nodes,
        warm=model.warm,
        running=model.running,
        waiting=model.waiting,
        requests_per_s=_per_s(_requests([model]) - _requests([was]), passed_s),
        tokens_per_s=_per_s(model.completion_tokens - was.completion_tokens, passed_s),
        failed=max(0, model.requests.get("failed", 0) - minute.requests.get("failed", 0)),
        first_token_ms=_first_token(_counts([model]), _counts([minute]), now.first_token_bounds_s),
    )


def _nodes(nodes: Iterable[PulseNode], lately: Pulse, now: Pulse) -> list[TopNodeRow]:
    before = {node.id: node.tokens for node in (*lately.busiest, *lately.troubled)}
    passed_s = now.at - lately.at
    return [
        TopNodeRow(
            id=node.id,
            name=node.name,
            state=node.state,
            gpu=node.gpu,
            running=node.running,
            queued=node.queued,
            slots=node.slots,
            tokens_per_s=_per_s(node.tokens - before[node.id], passed_s) if node.id in before else None,
            jobs_done=node.jobs_done,
            jobs_failed=node.jobs_failed,
            temperature_c=node.temperature_c,
            power_watts=node.power_watts,
            utilisation=node.utilisation,
            paused=node.paused,
        )
        for node in nodes
    ]


def _counts(models: Iterable[PulseModel]) -> list[int]:
    """Of all buckets together."""
    total: list[int] = []
    for model in models:
        counts = model.first_token_counts
        total += [0] * (len(counts) - len(total))
        for at, count in enumerate(counts):
            total[at] += count
    return total


def _first_token(now: Sequence[int], before: Sequence[int], bounds_s: Sequence[float]) -> FirstTokenPercentiles:
    earlier = [*before, *[0] * (len(now) - len(before))]
    grown = [max(0, count - was) for count, was in zip(now, earlier, strict=False)]
    return FirstTokenPercentiles(p50=_percentile_ms(grown, bounds_s, 0.5), p95=_percentile_ms(grown, bounds_s, 0.95))


def _percentile_ms(counts: Sequence[int], bounds_s: Sequence[float], share: float) -> float | None:
    """By its place within its bucket; beyond the last bound there is nothing better to say than that bound."""
    wanted, passed = share * sum(counts), 0
    for at, count in enumerate(counts):
        if count and passed + count >= wanted:
            if at >= len(bounds_s):
                break
            low_s = bounds_s[at - 1] if at else 0.0
            return 1000 * (low_s + (bounds_s[at] - low_s) * (wanted - passed) / count)
        passed += count
    return 1000 * bounds_s[-1] if sum(counts) and bounds_s else None
