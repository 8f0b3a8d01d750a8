"""The whole matcher: filter, score, pick. One call, the same answer for the same arguments.

Up to SCAN_MAX nodes of a model are all looked at; beyond that a shortlist, sorted anew four times a second, and a few
nodes drawn by chance. With numba the scan is compiled; the answers are the same without it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import CANDIDATES_KEPT, REJECTIONS_KEPT
from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.entries import Entries, Field, Floats
from sparewatt.inference.matcher.formula import JobNumbers
from sparewatt.inference.matcher.hashing import fractions, hash_text, start_of
from sparewatt.inference.matcher.model import Candidate, Decision, MatchJob, Rejected, Rejection
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.scan import balanced_parts, best_places, eligible
from sparewatt.inference.matcher.shortlist import shortlisted
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable

NANO = 1e9
HALF_A_STEP = 5e-7
"""Prices per million tokens come in millionths of a nano: rounding down must not slip below a whole one."""
SCAN_MAX = 10_000
_UNTIL_FIRST_TOKEN, _UNTIL_LAST_TOKEN = 5, 6
_FILTERS = (
    Rejection.OFFLINE,
    Rejection.DRAINING,
    Rejection.PROMPT_TOO_LONG,
    Rejection.TOO_LITTLE_VRAM,
    Rejection.NOT_MEASURED,
    Rejection.FULL,
)
"""In the order of the scan's counts."""


class Ranking(NamedTuple):
    """The best places, their parts (jitter last), and how many nodes each filter stopped."""

    places: list[int]
    parts: list[list[float]]
    dropped: dict[Rejection, int]


def match(
    job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int, compiled: bool | None = None
) -> Decision:
    """Rank the nodes that can have the job, best first, and count why the others cannot."""
    entries = table.entries(job.model)
    if entries is None:
        return Decision(job, policy.name, len(table), (), (), {Rejection.NO_MODEL: len(table)} if len(table) else {})
    compiled = kernel.ready() if compiled is None else compiled
    ranking = (
        _rank_compiled(job, table, entries, at, policy=policy, seed=seed)
        if compiled and policy.usd_weight is not None and not at.tried
        else _rank(job, table, entries, at, policy=policy, seed=seed)
    )
    predicted = ranking.parts if policy.usd_weight is not None else _predicted(job, table, entries, at, ranking.places)
    dropped = ranking.dropped
    stopped = bool(dropped)
    if len(table) > len(entries):
        dropped[Rejection.NO_MODEL] = len(table) - len(entries)
    return Decision(
        job=job,
        policy=policy.name,
        total=len(table),
        ranked=tuple(
            [
                _candidate(job, entries, place, parts, seconds, policy)
                for place, parts, seconds in zip(ranking.places, ranking.parts, predicted, strict=True)
            ]
        ),
        rejected=_rejected(job, entries, at) if stopped else (),
        dropped=dropped,
    )


def _rank_compiled(
    job: MatchJob, table: NodeTable, entries: Entries, at: Situation, *, policy: Policy, seed: int
) -> Ranking:
    match_hash = hash_text(job.id)
    strain = table.strain_of(job.model)
    numbers = JobNumbers(float(job.prompt_tokens), float(job.output_tokens), strain, policy.usd_weight or 0.0)
    places = _places(job, table, entries, at, match_hash)
    found, parts, counts = kernel.best_places(
        entries,
        places,
        numbers,
        floor=float(job.prompt_tokens_floor),
        now_s=at.now_s,
        away_s=at.rules.offline_after_s,
        suspect_after_s=at.rules.suspect_after_s,
        jitter=policy.jitter,
        start=start_of(seed, match_hash),
        k=CANDIDATES_KEPT,
    )
    dropped = {reason: count for reason, count in zip(_FILTERS, counts.tolist(), strict=True) if count}
    if places.size:
        dropped[Rejection.NOT_SHORTLISTED] = len(entries) - places.size
    return Ranking(found.tolist(), parts.tolist(), dropped)


def _places(job: MatchJob, table: NodeTable, entries: Entries, at: Situation, match_hash: int) -> NDArray[np.int64]:
    """Which places to look at; none named means all."""
    if len(entries) <= SCAN_MAX:
        return kernel.ALL
    return shortlisted(job, table, entries, at, match_hash)


def _rank(job: MatchJob, table: NodeTable, entries: Entries, at: Situation, *, policy: Policy, seed: int) -> Ranking:
    match_hash = hash_text(job.id)
    places = _places(job, table, entries, at, match_hash)
    data, hashes, nodes = entries.data, entries.hashes, entries.nodes
    if places.size:
        data, hashes, nodes = data[:, places], hashes[places], [nodes[place] for place in places]
    scan = eligible(job, data, now_s=at.now_s, rules=at.rules)
    dropped = {reason: int(np.count_nonzero(stopped)) for reason, stopped in scan.stopped.items()}
    if at.tried:
        _leave_out_tried(scan.able, nodes, at, dropped)
    parts = policy.parts(job, data, strain=table.strain_of(job.model), now_s=at.now_s, rules=at.rules)
    base = policy.sign * sum(parts[1:], parts[0])
    jitter = _jitter(base, policy, fractions(seed, match_hash, hashes))
    best = best_places(base + jitter, scan.able, nodes, k=CANDIDATES_KEPT)
    if places.size:
        dropped[Rejection.NOT_SHORTLISTED] = len(entries) - places.size
    columns = np.stack([*parts, jitter])[:, best]
    named = places[best] if places.size else np.array(best, np.int64)
    return Ranking(named.tolist(), columns.T.tolist(), dropped)


def _jitter(base: Floats, policy: Policy, fraction: Floats) -> Floats:
    jitter: Floats = np.abs(base) * policy.jitter * fraction
    return jitter


def _leave_out_tried(
    able: NDArray[np.bool_], nodes: list[NodeId], at: Situation, dropped: dict[Rejection, int]
) -> None:
    tried = np.fromiter((node in at.tried for node in nodes), bool, len(nodes)) & able
    count = int(np.count_nonzero(tried))
    if count:
        able[tried] = False
        dropped[Rejection.ALREADY_TRIED] = count


def _predicted(
    job: MatchJob, table: NodeTable, entries: Entries, at: Situation, places: list[int]
) -> list[list[float]]:
    """What a policy that only scores would have to wait: the node is told what it was counted on for."""
    numbers = JobNumbers(float(job.prompt_tokens), float(job.output_tokens), table.strain_of(job.model), 0.0)
    parts = balanced_parts(numbers, entries.data[:, places], now_s=at.now_s, rules=at.rules)
    columns: list[list[float]] = np.stack(parts).T.tolist()
    return columns


def _candidate(  # noqa: PLR0917
    job: MatchJob, entries: Entries, place: int, parts: list[float], seconds: list[float], policy: Policy
) -> Candidate:
    data = entries.data
    usd = job.prompt_tokens * data[Field.PROMPT_USD, place] + job.output_tokens * data[Field.COMPLETION_USD, place]
    return Candidate(
        entries.nodes[place],
        policy.sign * sum(parts[:-1]) + parts[-1],
        tuple(parts),
        sum(seconds[:_UNTIL_FIRST_TOKEN]),
        sum(seconds[:_UNTIL_LAST_TOKEN]),
        int(usd * NANO + HALF_A_STEP),
    )


def _rejected(job: MatchJob, entries: Entries, at: Situation) -> tuple[Rejected, ...]:
    """The first of those that have the model but were stopped: why they were is what people ask."""
    if len(entries) > SCAN_MAX:
        return ()
    scan = eligible(job, entries.data, now_s=at.now_s, rules=at.rules)
    stopped = {**scan.stopped}
    if at.tried:
        stopped[Rejection.ALREADY_TRIED] = scan.able & np.array([node in at.tried for node in entries.nodes], bool)
    found = [
        _describe(job, reason, entries, int(place))
        for reason, places in stopped.items()
        for place in _named(places, entries)
    ]
    return tuple(sorted(found, key=lambda item: item.node_id)[:REJECTIONS_KEPT])


def _named(stopped: NDArray[np.bool_], entries: Entries) -> NDArray[np.intp]:
    """At most as many as are kept, the same ones whatever the order of the table."""
    places = np.flatnonzero(stopped)
    if places.size <= REJECTIONS_KEPT:
        return places
    return places[np.argpartition(entries.hashes[places], REJECTIONS_KEPT)[:REJECTIONS_KEPT]]


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
