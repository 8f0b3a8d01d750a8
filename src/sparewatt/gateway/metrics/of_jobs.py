"""Families about requests: what became of them, how long they took, who waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.gateway.metrics import names
from sparewatt.gateway.metrics.job_meter import OTHER, ModelMeter
from sparewatt.gateway.metrics.model import Family, Metric, Sample, Samples, family, one
from sparewatt.gateway.services import Services


def collect_jobs(services: Services) -> Samples:
    meters, jobs = services.meters, services.meters.jobs
    jobs.tidy()
    waiting = services.admission.waiting_by_model()
    running = {model: services.table.in_flight(model) for model in services.table.model_ids()}
    return [
        *_by_model(jobs.models),
        labelled(names.REQUEST_ERRORS, "code", services.history.tally.errors),
        family(names.MATCH_DURATION, *jobs.match.samples()),
        family(names.MATCH_CANDIDATES, *jobs.candidates.samples()),
        labelled(names.CASCADE, "reason", jobs.cascades),
        one(names.SEAMS, jobs.seams),
        family(names.QUEUE_WAIT, *meters.queue_wait.samples()),
        one(names.RUNNING, services.dispatcher.running),
        labelled(names.MODEL_RUNNING, "model", largest(running)),
        one(names.WAITING, sum(waiting.values())),
        labelled(names.MODEL_WAITING, "model", largest(waiting)),
        one(names.FEED_VIEWERS, services.live.viewers),
        one(names.RATE_METERS, len(services.limits)),
    ]


def _by_model(models: Mapping[str, ModelMeter]) -> Iterable[Family]:
    meters = sorted(models.items())
    yield family(
        names.REQUESTS,
        *(
            Sample(count, (("model", model), ("outcome", end)))
            for model, meter in meters
            for end, count in meter.ends.items()
        ),
    )
    yield family(
        names.TOKENS,
        *(
            Sample(tokens, (("model", model), ("direction", direction)))
            for model, meter in meters
            for direction, tokens in (("prompt", meter.prompt_tokens), ("completion", meter.completion_tokens))
        ),
    )
    for metric, histogram in (
        (names.FIRST_TOKEN, "first_token"),
        (names.PER_TOKEN, "per_token"),
        (names.DURATION, "duration"),
    ):
        samples = [
            sample for model, meter in meters for sample in getattr(meter, histogram).samples((("model", model),))
        ]
        yield family(metric, *samples)


def labelled(metric: Metric, label: str, counts: Mapping[str, float]) -> Family:
    """One sample for each name."""
    return family(metric, *(Sample(count, ((label, name),)) for name, count in sorted(counts.items())))


def largest(counts: Mapping[str, int]) -> dict[str, int]:
    """As many names as may have a line of their own, and the rest together."""
    if len(counts) <= METRICS_MODELS_MAX:
        return dict(counts)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ordered[METRICS_MODELS_MAX:])
    kept = dict(ordered[:METRICS_MODELS_MAX])
    return kept | {OTHER: kept.get(OTHER, 0) + rest}
