"""A match decision in words and numbers: why this node was chosen, and why each other node was not. Pure.

It describes what the matcher decided; attempts and their outcomes are added by `telemetry/explanations.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from sparewatt.core.ids import NodeId
from sparewatt.core.money import format_usd
from sparewatt.core.plural import pluralize
from sparewatt.inference.matcher.formula import NO_PREFERENCE, RANKINGS, Preference, Ranking
from sparewatt.inference.matcher.model import Candidate, Decision, RejectedNode, Rejection
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.policy.model_names.parser import without_directories
from sparewatt.protocol.api.matches import (
    DecisionExplanation,
    FunnelStep,
    JobEstimate,
    MatchPreference,
    NodeRejection,
    RankedNode,
    RejectionName,
)

NEAREST_MODELS = 3

_SENTENCES = {
    Rejection.OFFLINE: "is not connected",
    Rejection.DRAINING: "is finishing its jobs before it stops",
    Rejection.NO_MODEL: "does not serve this model",
    Rejection.PROMPT_TOO_LONG: "holds {had:.0f} tokens of context; the prompt has at least {needed:.0f}",
    Rejection.TOO_LITTLE_VRAM: "has {had:.3g} bytes of memory; the job needs {needed:.3g}",
    Rejection.NOT_MEASURED: "has not been measured for this model yet",
    Rejection.FULL: "already has all the jobs it may queue ({had:.0f})",
    Rejection.NOT_TIMED: "has not been timed by this network with this model yet, and gets a small share until it is",
    Rejection.SUSPENDED: "gave an answer that failed a check, and gets checks alone until one is passed",
    Rejection.ALREADY_TRIED: "was tried for this job and failed",
    Rejection.NOT_SHORTLISTED: "was not among the best of this model when they were last sorted",
}
_NAMES: dict[Rejection, RejectionName] = {
    Rejection.OFFLINE: "offline",
    Rejection.DRAINING: "draining",
    Rejection.NO_MODEL: "no_model",
    Rejection.PROMPT_TOO_LONG: "prompt_too_long",
    Rejection.TOO_LITTLE_VRAM: "too_little_vram",
    Rejection.NOT_MEASURED: "not_measured",
    Rejection.FULL: "full",
    Rejection.NOT_TIMED: "not_timed",
    Rejection.SUSPENDED: "suspended",
    Rejection.ALREADY_TRIED: "already_tried",
    Rejection.NOT_SHORTLISTED: "not_shortlisted",
}


def nearest_models(wanted: str, known: Iterable[str]) -> list[str]:
    """The known ids that are most like `wanted`, best first."""
    by_case = {model.lower(): model for model in sorted(known)}
    close = difflib.get_close_matches(wanted.lower(), list(by_case), n=NEAREST_MODELS, cutoff=0.0)
    return [by_case[model] for model in close]


def describe(decision: Decision, rows: Mapping[NodeId, NodeRow]) -> DecisionExplanation:
    """The part of an explanation that the matcher knows. `rows`: the nodes that it names, as far as they are known."""
    return DecisionExplanation(
        policy=decision.ranking,
        model=decision.job.model,
        preference=_preference(decision.job.preference),
        job=_estimate(decision, rows),
        candidates_total=decision.total,
        funnel=_funnel(decision),
        rejected=[_describe_rejected(item, rows) for item in decision.rejected],
        ranked=describe_ranked(decision.ranked, decision.ranking, rows, model=decision.job.model),
        chosen=decision.best.node_id if decision.best else None,
        nearest_relaxations=[] if decision.ranked else _relaxations(decision),
        is_trial=decision.is_turn,
    )


def describe_ranked(
    ranked: Iterable[Candidate], ranking: str, rows: Mapping[NodeId, NodeRow], *, model: str
) -> list[RankedNode]:
    return [_describe_candidate(item, RANKINGS[ranking], rows, model) for item in ranked]


def _preference(preference: Preference) -> MatchPreference | None:
    if preference == NO_PREFERENCE:
        return None
    return MatchPreference(sort=preference.sort, weights=dict(preference.weights))


def _estimate(decision: Decision, rows: Mapping[NodeId, NodeRow]) -> JobEstimate:
    job = decision.job
    row = rows.get(decision.best.node_id) if decision.best else None
    model = row.models.get(job.model) if row else None
    return JobEstimate(
        prompt_tokens=job.prompt_tokens,
        output_tokens=job.output_tokens,
        vram_needed_bytes=job.vram_needed_bytes(model) if model else None,
    )


def _funnel(decision: Decision) -> list[FunnelStep]:
    """The fields of the job's policy stand right behind the model: nodes that they rule out meet no other filter."""
    first, *others = ((reason.value, decision.rejected_by_reason.get(reason, 0)) for reason in Rejection)
    left, steps = decision.total, []
    for name, dropped in (first, *decision.rejected_by_policy.items(), *others):
        left -= dropped
        steps.append(FunnelStep(filter=name, dropped=dropped, left=left))
    return steps


def _describe_rejected(item: RejectedNode, rows: Mapping[NodeId, NodeRow]) -> NodeRejection:
    return NodeRejection(
        node=item.node_id,
        name=_name(item.node_id, rows),
        reason=_NAMES[item.reason],
        detail=_SENTENCES[item.reason].format(needed=item.needed, had=item.had),
    )


def _describe_candidate(item: Candidate, ranking: Ranking, rows: Mapping[NodeId, NodeRow], model: str) -> RankedNode:
    row = rows.get(item.node_id)
    report = row.models.get(model) if row else None
    in_seconds = ranking.unit == "s"
    return RankedNode(
        node=item.node_id,
        name=_name(item.node_id, rows),
        region=row.specs.region if row else None,
        cost_s=round(item.cost, 6) if in_seconds else None,
        score=None if in_seconds else round(-item.cost, 6),
        parts={name: round(part, 6) for name, part in zip((*ranking.part_names, "jitter"), item.parts, strict=True)},
        predicted_ttft_s=round(item.predicted_ttft_s, 6),
        cached_tokens=item.cached_tokens,
        price_usd=format_usd(item.price_nano),
        quantization=report.quantization if report else None,
        served_as=without_directories(report.served_as) if report and report.served_as is not None else None,
    )


def _name(node_id: NodeId, rows: Mapping[NodeId, NodeRow]) -> str | None:
    row = rows.get(node_id)
    return row.specs.name if row else None


def _relaxations(decision: Decision) -> list[str]:
    """What would have to change for a node to be eligible, nearest first."""
    relaxations = []
    for reason, words in (
        (Rejection.PROMPT_TOO_LONG, "a prompt under {:.0f} tokens"),
        (Rejection.TOO_LITTLE_VRAM, "a job that fits {:.3g} bytes of memory"),
    ):
        largest = max((item.had for item in decision.rejected if item.reason is reason), default=None)
        if largest is not None:
            count = sum(item.had == largest for item in decision.rejected if item.reason is reason)
            relaxations.append(f"{words.format(largest)} adds {pluralize(count, 'node')}")
    for reason, words in ((Rejection.OFFLINE, "come back"), (Rejection.FULL, "finish a job")):
        if decision.rejected_by_reason.get(reason):
            relaxations.append(f"waiting for {pluralize(decision.rejected_by_reason[reason], 'node')} to {words}")
    return relaxations
