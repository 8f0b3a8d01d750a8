"""A decision in words and numbers, for the developer who asks why this node and the owner who asks why not theirs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from sparewatt.core.ids import NodeId
from sparewatt.core.money import format_usd
from sparewatt.core.words import counted
from sparewatt.inference.matcher.model import AS_USUAL, Candidate, Decision, NodeRow, Preference, Rejected, Rejection
from sparewatt.inference.matcher.policies import POLICIES, Policy

NEAREST_MODELS = 3

_SENTENCES = {
    Rejection.OFFLINE: "is not connected",
    Rejection.DRAINING: "is finishing its jobs before it stops",
    Rejection.NO_MODEL: "does not serve this model",
    Rejection.PROMPT_TOO_LONG: "holds {had:.0f} tokens of context; the prompt has at least {needed:.0f}",
    Rejection.TOO_LITTLE_VRAM: "has {had:.3g} bytes of memory; the job needs {needed:.3g}",
    Rejection.NOT_MEASURED: "has not been measured for this model yet",
    Rejection.FULL: "already has all the jobs it may queue ({had:.0f})",
    Rejection.ALREADY_TRIED: "was tried for this job and failed",
    Rejection.NOT_SHORTLISTED: "was not among the best of this model when they were last sorted",
}


def nearest_models(wanted: str, known: Iterable[str]) -> list[str]:
    """The ids most like what was asked for, best first."""
    by_case = {model.lower(): model for model in sorted(known)}
    close = difflib.get_close_matches(wanted.lower(), list(by_case), n=NEAREST_MODELS, cutoff=0.0)
    return [by_case[model] for model in close]


def describe(decision: Decision, rows: Mapping[NodeId, NodeRow]) -> dict[str, Any]:
    """The part of an explanation that the matcher knows; attempts are added by who dispatched."""
    return {
        "policy": decision.policy,
        "model": decision.job.model,
        "preference": _preference(decision.job.preference),
        "job": {"prompt_tokens": decision.job.prompt_tokens, "output_tokens": decision.job.output_tokens},
        "candidates_total": decision.total,
        "funnel": _funnel(decision),
        "rejected": [_describe_rejected(item, rows) for item in decision.rejected],
        "ranked": describe_ranked(decision.ranked, decision.policy, rows),
        "chosen": decision.best.node_id if decision.best else None,
        "nearest_relaxations": [] if decision.ranked else _relaxations(decision),
    }


def describe_ranked(ranked: Iterable[Candidate], policy: str, rows: Mapping[NodeId, NodeRow]) -> list[dict[str, Any]]:
    return [_describe_candidate(item, POLICIES[policy], rows) for item in ranked]


def _preference(preference: Preference) -> dict[str, Any] | None:
    if preference == AS_USUAL:
        return None
    return {"sort": preference.sort, "weights": dict(preference.weights)}


def _funnel(decision: Decision) -> list[dict[str, Any]]:
    """What the job's policy ruled out stands right behind the model: nobody else was looked at."""
    first, *others = ((reason.value, decision.dropped.get(reason, 0)) for reason in Rejection)
    left, steps = decision.total, []
    for name, dropped in (first, *decision.barred.items(), *others):
        left -= dropped
        steps.append({"filter": name, "dropped": dropped, "left": left})
    return steps


def _describe_rejected(item: Rejected, rows: Mapping[NodeId, NodeRow]) -> dict[str, Any]:
    return {
        "node": item.node_id,
        "name": _name(item.node_id, rows),
        "reason": item.reason.name.lower(),
        "detail": _SENTENCES[item.reason].format(needed=item.needed, had=item.had),
    }


def _describe_candidate(item: Candidate, policy: Policy, rows: Mapping[NodeId, NodeRow]) -> dict[str, Any]:
    row = rows.get(item.node_id)
    in_seconds = policy.unit == "s"
    return {
        "node": item.node_id,
        "name": _name(item.node_id, rows),
        "region": row.specs.region if row else None,
        "cost_s": round(item.cost, 6) if in_seconds else None,
        "score": None if in_seconds else round(-item.cost, 6),
        "parts": {name: round(part, 6) for name, part in zip((*policy.part_names, "jitter"), item.parts, strict=True)},
        "predicted_ttft_s": round(item.predicted_ttft_s, 6),
        "cached_tokens": item.cached_tokens,
        "price_usd": format_usd(item.price_nano),
    }


def _name(node_id: NodeId, rows: Mapping[NodeId, NodeRow]) -> str | None:
    row = rows.get(node_id)
    return row.specs.name if row else None


def _relaxations(decision: Decision) -> list[str]:
    """What would have to change for somebody to be eligible, nearest first."""
    found = []
    for reason, words in (
        (Rejection.PROMPT_TOO_LONG, "a prompt under {:.0f} tokens"),
        (Rejection.TOO_LITTLE_VRAM, "a job that fits {:.3g} bytes of memory"),
    ):
        largest = max((item.had for item in decision.rejected if item.reason is reason), default=None)
        if largest is not None:
            count = sum(item.had == largest for item in decision.rejected if item.reason is reason)
            found.append(f"{words.format(largest)} adds {counted(count, 'node')}")
    for reason, words in ((Rejection.OFFLINE, "come back"), (Rejection.FULL, "finish a job")):
        if decision.dropped.get(reason):
            found.append(f"waiting for {counted(decision.dropped[reason], 'node')} to {words}")
    return found
