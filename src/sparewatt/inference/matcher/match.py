"""The whole matcher: filter, score, pick. One call, no state, the same answer for the same arguments."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sparewatt.core.limits import CANDIDATES_KEPT, REJECTIONS_KEPT
from sparewatt.inference.matcher.entries import Entries, Field, Floats
from sparewatt.inference.matcher.filters import Situation
from sparewatt.inference.matcher.hashing import fractions, hash_text
from sparewatt.inference.matcher.model import Candidate, Decision, MatchJob, Rejected, Rejection
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.scan import Scan, best_places, eligible
from sparewatt.inference.matcher.table import NodeTable

NANO = 1e9
_UNTIL_FIRST_TOKEN = 5
_UNTIL_LAST_TOKEN = 6


def match(job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int) -> Decision:
    """Rank the nodes that can have the job, best first, and count why the others cannot."""
    entries = table.entries(job.model)
    if entries is None:
        dropped = Counter({Rejection.NO_MODEL: len(table)}) if len(table) else Counter()
        return Decision(job, policy.name, len(table), (), (), dropped)
    data = entries.data
    scan = eligible(job, data, now_s=at.now_s, rules=at.rules)
    _leave_out_tried(scan, entries, at)
    parts = policy.parts(job, data, strain=table.strain_of(job.model), now_s=at.now_s, rules=at.rules)
    base = policy.sign * sum(parts[1:], parts[0])
    jitter = _jitter(job, entries, base, policy=policy, seed=seed)
    ranked = best_places(base + jitter, scan.able, entries, k=CANDIDATES_KEPT)
    return Decision(
        job=job,
        policy=policy.name,
        total=len(table),
        ranked=tuple(_candidate(job, entries, place, (*parts, jitter), base) for place in ranked),
        rejected=_rejected(job, scan, entries),
        dropped=_dropped(scan, others=len(table) - len(entries)),
    )


def _leave_out_tried(scan: Scan, entries: Entries, at: Situation) -> None:
    if not at.tried:
        return
    tried = np.fromiter((node in at.tried for node in entries.nodes), bool, len(entries)) & scan.able
    if tried.any():
        scan.stopped[Rejection.ALREADY_TRIED] = tried
        scan.able[tried] = False


def _jitter(job: MatchJob, entries: Entries, base: Floats, *, policy: Policy, seed: int) -> Floats:
    if not policy.jitter:
        return np.zeros(len(entries))
    jitter: Floats = np.abs(base) * policy.jitter * fractions(seed, hash_text(job.id), entries.hashes)
    return jitter


def _candidate(job: MatchJob, entries: Entries, place: int, parts: tuple[Floats, ...], base: Floats) -> Candidate:
    values = tuple(float(part[place]) for part in parts)
    data = entries.data
    usd = job.prompt_tokens * data[Field.PROMPT_USD, place] + job.output_tokens * data[Field.COMPLETION_USD, place]
    is_prediction = len(values) > _UNTIL_LAST_TOKEN
    return Candidate(
        node_id=entries.nodes[place],
        cost=float(base[place]) + values[-1],
        parts=values,
        predicted_ttft_s=sum(values[:_UNTIL_FIRST_TOKEN]) if is_prediction else 0.0,
        predicted_finish_s=sum(values[:_UNTIL_LAST_TOKEN]) if is_prediction else 0.0,
        price_nano=int(usd * NANO),
    )


def _dropped(scan: Scan, *, others: int) -> dict[Rejection, int]:
    dropped = {reason: int(np.count_nonzero(places)) for reason, places in scan.stopped.items()}
    return dropped | ({Rejection.NO_MODEL: others} if others else {})


def _rejected(job: MatchJob, scan: Scan, entries: Entries) -> tuple[Rejected, ...]:
    """The first of those that have the model but were stopped: why they were is what people ask."""
    found = [
        _describe(job, reason, entries, int(place))
        for reason, places in scan.stopped.items()
        for place in np.flatnonzero(places)[:REJECTIONS_KEPT]
    ]
    return tuple(sorted(found, key=lambda item: item.node_id)[:REJECTIONS_KEPT])


def _describe(job: MatchJob, reason: Rejection, entries: Entries, place: int) -> Rejected:
    value = entries.data[:, place]
    context = job.prompt_tokens + job.output_tokens
    match reason:
        case Rejection.PROMPT_TOO_LONG:
            needed, had = float(job.prompt_tokens_floor), float(value[Field.CONTEXT_TOKENS])
        case Rejection.TOO_LITTLE_VRAM:
            needed = float(value[Field.WEIGHTS_BYTES] + value[Field.KV_BYTES_PER_TOKEN] * context)
            had = float(value[Field.VRAM_BYTES])
        case Rejection.FULL:
            needed, had = float(value[Field.JOBS] + 1), float(value[Field.ROOM_JOBS])
        case _:
            needed = had = 0.0
    return Rejected(entries.nodes[place], reason, needed=needed, had=had)
