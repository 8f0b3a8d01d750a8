"""Metric families about requests: how they ended, how long they took, how many wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.telemetry.job_totals import OTHER, ModelTotals
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.model import Family, Metric, Sample, Samples, family, one


def collect_jobs(counter: JobCounter, table: NodeTable, admission: AdmissionControl, *, running: int) -> Samples:
    jobs = counter.totals
    jobs.tidy()
    waiting = admission.waiting_by_model()
    by_model = {model: table.in_flight(model) for model in table.model_ids()}
    return [
        *_by_model(jobs.models),
        labelled(names.REQUEST_ERRORS, "code", counter.errors),
        family(names.MATCH_DURATION, *jobs.match.samples()),
        family(names.MATCH_CANDIDATES, *jobs.candidates.samples()),
        labelled(names.CASCADE, "reason", jobs.cascades),
        one(names.SEAMS, jobs.seams),
        family(names.QUEUE_WAIT, *jobs.queue_wait.samples()),
        one(names.RUNNING, running),
        labelled(names.MODEL_RUNNING, "model", largest(by_model)),
        one(names.WAITING, sum(waiting.values())),
        labelled(names.MODEL_WAITING, "model", largest(waiting)),
    ]


def _by_model(models: Mapping[str, ModelTotals]) -> Iterable[Family]:
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
    """As many names as may have a series of their own, and the rest together."""
    if len(counts) <= METRICS_MODELS_MAX:
        return dict(counts)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ordered[METRICS_MODELS_MAX:])
    kept = dict(ordered[:METRICS_MODELS_MAX])
    return kept | {OTHER: kept.get(OTHER, 0) + rest}
