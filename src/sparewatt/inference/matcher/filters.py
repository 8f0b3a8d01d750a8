"""Hard filters: each says in one line who cannot have the job, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import LINK_JOBS_MAX, NODE_QUEUE_PER_SLOT
from sparewatt.inference.matcher.health import is_offline
from sparewatt.inference.matcher.model import HealthRules, MatchJob, NodeRow, Rejected, Rejection
from sparewatt.protocol.node import ModelReport


@dataclass(frozen=True, slots=True)
class Situation:
    """What a filter may know besides the job and the node."""

    now_s: float
    rules: HealthRules
    tried: Collection[NodeId] = frozenset()


Filter = Callable[[MatchJob, NodeRow, Situation], Rejected | None]


def vram_needed_bytes(job: MatchJob, model: ModelReport) -> int:
    """Weights, and keys and values for the whole context of the job (NeuralGrid's minVram)."""
    return model.weights_bytes + model.kv_bytes_per_token * (job.prompt_tokens + job.output_tokens)


def must_be_online(_: MatchJob, row: NodeRow, at: Situation) -> Rejected | None:
    return Rejected(row.id, Rejection.OFFLINE) if is_offline(row, now_s=at.now_s, rules=at.rules) else None


def must_be_accepting(_: MatchJob, row: NodeRow, __: Situation) -> Rejected | None:
    return Rejected(row.id, Rejection.DRAINING) if row.load.draining else None


def must_serve_model(job: MatchJob, row: NodeRow, _: Situation) -> Rejected | None:
    return None if job.model in row.models else Rejected(row.id, Rejection.NO_MODEL)


def must_hold_prompt(job: MatchJob, row: NodeRow, _: Situation) -> Rejected | None:
    limit = row.models[job.model].context_length
    if limit is None or job.prompt_tokens_floor < limit:
        return None
    return Rejected(row.id, Rejection.PROMPT_TOO_LONG, needed=job.prompt_tokens_floor, had=limit)


def must_have_vram(job: MatchJob, row: NodeRow, _: Situation) -> Rejected | None:
    model = row.models[job.model]
    # A model that is loaded has its memory already, context included.
    needed = 0 if model.state == "warm" else vram_needed_bytes(job, model)
    if row.specs.vram_bytes >= needed:
        return None
    return Rejected(row.id, Rejection.TOO_LITTLE_VRAM, needed=needed, had=row.specs.vram_bytes)


def must_be_measured(job: MatchJob, row: NodeRow, _: Situation) -> Rejected | None:
    return None if row.models[job.model].measured is not None else Rejected(row.id, Rejection.NOT_MEASURED)


def must_have_room(_: MatchJob, row: NodeRow, __: Situation) -> Rejected | None:
    """A place in the node's queue, and one on its link: a job beyond either would only be refused, or worse."""
    queue = row.specs.slots * (1 + NODE_QUEUE_PER_SLOT)
    for jobs, room in ((row.jobs_there, queue), (row.own_jobs, LINK_JOBS_MAX)):
        if jobs >= room:
            return Rejected(row.id, Rejection.FULL, needed=jobs + 1, had=room)
    return None


def must_be_untried(_: MatchJob, row: NodeRow, at: Situation) -> Rejected | None:
    return Rejected(row.id, Rejection.ALREADY_TRIED) if row.id in at.tried else None


FILTERS: tuple[Filter, ...] = (
    must_serve_model,
    must_be_online,
    must_be_accepting,
    must_hold_prompt,
    must_have_vram,
    must_be_measured,
    must_have_room,
    must_be_untried,
)
"""In the order of `Rejection`; a node is counted at the first filter that stops it."""


def first_rejection(job: MatchJob, row: NodeRow, at: Situation) -> Rejected | None:
    for check in FILTERS:
        rejected = check(job, row, at)
        if rejected is not None:
            return rejected
    return None
