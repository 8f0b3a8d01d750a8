"""Who gets a job: the matcher, asked once for every stage of the job's gate; and why nobody can have it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparewatt.core.errors import (
    BadRequest,
    FirstTokenTimeout,
    JobFailed,
    ModelNotFound,
    NoCapacity,
    NoEligibleNode,
    SparewattError,
)
from sparewatt.core.words import counted
from sparewatt.inference.capabilities import unable_error
from sparewatt.inference.dispatch.model import AttemptRecord, Gate, Outcome
from sparewatt.inference.matcher.explain import nearest_models
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Decision, MatchJob, Rejection
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.carriers import SUFFIX_SORTS

RETRY_AFTER_S = 2.0
_MAY_PASS = frozenset({Rejection.OFFLINE, Rejection.DRAINING, Rejection.NOT_MEASURED, Rejection.FULL})
"""Reasons that time can mend: the client is told to come back."""


def match_through(
    gate: Gate | None, job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int
) -> Decision:
    """The first of the gate's stages that leaves a candidate decides; else the last."""
    if gate is None:
        return match(job, table, at, policy=policy, seed=seed)
    own = gate.own_nodes()
    for allowed in gate.stages():
        seen = at if allowed is None and not own else at.seen_through(allowed, own)
        decision = match(job, table, seen, policy=policy, seed=seed)
        if decision.found:
            break
    return decision


def no_match_error(decision: Decision, table: NodeTable, gate: Gate | None = None) -> SparewattError:
    """Why nobody can have the job: the model's name, the moment, or the request."""
    model = decision.job.model
    reasons = {reason for reason, count in decision.dropped.items() if count} - {Rejection.NO_MODEL}
    if not reasons and decision.barred:
        return unable_error(decision.barred, model) or _barred_error(decision, gate)
    if not reasons:
        known = table.model_ids()
        return ModelNotFound(model, nearest=nearest_models(model, known), why=wrong_suffix(model, known))
    if reasons & _MAY_PASS:
        said = ", ".join(sorted(reason.value for reason in reasons & _MAY_PASS))
        return NoCapacity(
            f"No node can take {model!r} right now (stopped by: {said}). Try again in a moment.",
            retry_after_s=RETRY_AFTER_S,
        )
    if Rejection.PROMPT_TOO_LONG in reasons:
        longest = max(row.models[model].context_length or 0 for row in table if model in row.models)
        return ContextTooLong(f"The prompt is longer than the {longest} tokens that {model!r} can hold here.")
    return NoEligibleNode(f"No node that serves {model!r} has the memory for this job.")


def wrong_suffix(model: str, known: Collection[str]) -> str:
    """What to tell who asked for a model that is served, with something behind its name that nobody knows."""
    ends = [at for at, sign in enumerate(model) if sign in ":@" and model[:at] in known]
    if not ends:
        return ""
    name, suffix = model[: ends[-1]], model[ends[-1] :]
    sorts = ", ".join(f"':{sort}'" for sort in SUFFIX_SORTS)
    return f"{name!r} is, but {suffix[:40]!r} is no suffix: there are {sorts}, and '@' with a region, as in '@eu'."


def exhausted_error(attempts: Sequence[AttemptRecord]) -> SparewattError:
    """Nobody who was tried brought anything."""
    story = "; ".join(f"{attempt.node_id[:10]}… {attempt.reason}" for attempt in attempts)
    message = f"No node could answer after {counted(len(attempts), 'attempt')}: {story}."
    if all(attempt.outcome is Outcome.REFUSED for attempt in attempts):
        return NoCapacity(message, retry_after_s=RETRY_AFTER_S)
    if all(attempt.outcome is Outcome.TIMED_OUT for attempt in attempts):
        return FirstTokenTimeout(message)
    return JobFailed(message)


def _barred_error(decision: Decision, gate: Gate | None) -> NoEligibleNode:
    """A policy left nobody: which of its fields, and what would help."""
    said = ", ".join(f"{field} ({count})" for field, count in decision.barred.items())
    nearest = gate.relaxations() if gate is not None else []
    hint = f" Nearest: {'; '.join(nearest)}." if nearest else ""
    return NoEligibleNode(f"Every node that serves {decision.job.model!r} is ruled out by: {said}.{hint}")


class ContextTooLong(BadRequest):
    code = "context_length_exceeded"
