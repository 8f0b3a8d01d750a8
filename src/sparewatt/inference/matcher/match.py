"""The whole matcher: filter, score, pick. One call, no state, the same answer for the same arguments."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable

from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import CANDIDATES_KEPT, REJECTIONS_KEPT
from sparewatt.inference.matcher import terms
from sparewatt.inference.matcher.filters import Situation, first_rejection
from sparewatt.inference.matcher.model import Candidate, Decision, MatchJob, NodeRow, Rejected, Rejection
from sparewatt.inference.matcher.policies import Policy


def match(job: MatchJob, rows: Iterable[NodeRow], at: Situation, *, policy: Policy, seed: int) -> Decision:
    """Rank the nodes that can have the job, best first, and count why the others cannot."""
    rejected: list[Rejected] = []
    candidates: list[Candidate] = []
    for row in rows:
        stopped = first_rejection(job, row, at)
        if stopped is None:
            candidates.append(_candidate(job, row, at, policy=policy, seed=seed))
        else:
            rejected.append(stopped)
    ranked = heapq.nsmallest(CANDIDATES_KEPT, candidates, key=lambda c: (round(c.cost, 6), c.node_id))
    return Decision(
        job=job,
        policy=policy.name,
        total=len(candidates) + len(rejected),
        ranked=tuple(ranked),
        rejected=tuple(sorted(rejected, key=_telling_first)[:REJECTIONS_KEPT]),
        dropped=Counter(r.reason for r in rejected),
    )


def _telling_first(item: Rejected) -> tuple[bool, NodeId]:
    """Nodes that serve the model come first: why they were stopped is what people ask."""
    return item.reason is Rejection.NO_MODEL, item.node_id


def _candidate(job: MatchJob, row: NodeRow, at: Situation, *, policy: Policy, seed: int) -> Candidate:
    parts = policy.parts_of(job, row, at)
    base = policy.sign * sum(parts)
    jitter = abs(base) * policy.jitter * hash_fraction(seed, job.id, row.id)
    model = row.models[job.model]
    ttft_s = (
        terms.network_s(row) + terms.queue_s(job, row, model) + terms.cold_load_s(model) + terms.prefill_s(job, model)
    )
    return Candidate(
        node_id=row.id,
        cost=base + jitter,
        parts=(*parts, jitter),
        predicted_ttft_s=ttft_s,
        predicted_finish_s=ttft_s + terms.decode_s(job, row, model),
        price_nano=terms.price_nano(job, model),
    )


def hash_fraction(seed: int, match_id: MatchId, node_id: NodeId) -> float:
    """A number in [0, 1) that anyone can recompute."""
    digest = hashlib.blake2b(f"{seed}|{match_id}|{node_id}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
