"""What a process has counted since it started, as a pulse shows it; and the sum over a gateway's processes.

A process that does not answer is left out, and one that started again counts from zero: `instance` is another one then,
so that nobody takes the difference for work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.gateway.metrics.job_meter import ModelMeter
from sparewatt.gateway.services import Services
from sparewatt.gateway.siblings.questions import COUNTS, Counts, CountsAsked, ModelCounts, NodeCounts

NO_JOB = ModelMeter()


async def count_all(services: Services, nodes: Sequence[str]) -> Counts:
    """Of all processes of this gateway; of nodes only those named."""
    told = await services.siblings.asker.ask_all(COUNTS, CountsAsked(list(nodes))) if services.place.others else ()
    return added([count_here(services, nodes), *told])


def count_here(services: Services, nodes: Iterable[str]) -> Counts:
    """With what running jobs have written: a long answer must not look like a pause."""
    by_model, by_node = services.dispatcher.being_written()
    waiting = services.admission.waiting_by_model()
    meters = services.meters.jobs.models
    return Counts(
        instance=services.live.frames.run,
        running=services.dispatcher.running,
        waiting=services.admission.waiting,
        tokens_written=services.dispatcher.tokens,
        errors=dict(services.history.tally.errors),
        models={
            model: _of_model(model, meters.get(model, NO_JOB), services, writing=by_model[model], waiting=waiting)
            for model in _asked_for(services)
        },
        nodes={
            row.id: NodeCounts(
                tokens=services.meters.jobs.node_tokens.get(row.id, 0) + by_node[row.id],
                done=row.jobs_done,
                failed=row.jobs_failed,
            )
            for node in nodes
            if (row := services.table.get(NodeId(node))) is not None
        },
    )


def _asked_for(services: Services) -> list[str]:
    """Models that had jobs, and some that have one now: names come from strangers."""
    now = [*services.table.models_in_flight(), *services.admission.waiting_by_model()]
    return list(dict.fromkeys([*services.meters.jobs.models, *now[:METRICS_MODELS_MAX]]))


def _of_model(
    model: str, meter: ModelMeter, services: Services, *, writing: int, waiting: dict[str, int]
) -> ModelCounts:
    return ModelCounts(
        running=services.table.in_flight(model),
        waiting=waiting.get(model, 0),
        requests=dict(meter.ends),
        prompt_tokens=meter.prompt_tokens,
        completion_tokens=meter.completion_tokens + writing,
        first_token_counts=list(meter.first_token.counts),
    )


def added(told: Sequence[Counts]) -> Counts:
    """All of them as one."""
    if len(told) == 1:
        return told[0]
    models = dict.fromkeys(model for counts in told for model in counts.models)
    nodes = dict.fromkeys(node for counts in told for node in counts.nodes)
    return Counts(
        instance="+".join(sorted(counts.instance for counts in told)),
        running=sum(counts.running for counts in told),
        waiting=sum(counts.waiting for counts in told),
        tokens_written=sum(counts.tokens_written for counts in told),
        errors=_summed(counts.errors for counts in told),
        models={name: _one_model([each.models[name] for each in told if name in each.models]) for name in models},
        nodes={name: _one_node([each.nodes[name] for each in told if name in each.nodes]) for name in nodes},
    )


def _one_model(told: Sequence[ModelCounts]) -> ModelCounts:
    return ModelCounts(
        running=sum(each.running for each in told),
        waiting=sum(each.waiting for each in told),
        requests=_summed(each.requests for each in told),
        prompt_tokens=sum(each.prompt_tokens for each in told),
        completion_tokens=sum(each.completion_tokens for each in told),
        first_token_counts=[sum(bucket) for bucket in zip(*(each.first_token_counts for each in told), strict=True)],
    )


def _one_node(told: Sequence[NodeCounts]) -> NodeCounts:
    return NodeCounts(
        tokens=sum(each.tokens for each in told),
        done=sum(each.done for each in told),
        failed=sum(each.failed for each in told),
    )


def _summed(counted: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counted:
        total.update(each)
    return dict(total)
