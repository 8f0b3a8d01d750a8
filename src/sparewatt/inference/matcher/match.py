"""The whole matcher: filter, score, pick. One call, the same answer for the same arguments.

Up to SCAN_MAX nodes of a model are all looked at; beyond that a shortlist, sorted anew four times a second, and a few
nodes drawn by chance. With numba the scan is compiled; the answers are the same without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import numpy as np

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import CANDIDATES_KEPT
from sparewatt.inference.matcher import affinity, kernel, scan
from sparewatt.inference.matcher.entries import SCAN_MAX, Entries
from sparewatt.inference.matcher.hashing import hash_text, start_of
from sparewatt.inference.matcher.model import Allowed, Decision, MatchJob
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.question import NOBODY, Places, Question, Rank, Ranking
from sparewatt.inference.matcher.shortlist import shortlisted
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable

OWN_NODE = "own_node"
"""The filter that keeps a job paid with free credits off its payer's own nodes."""

LARGE_SHARE = 0.75
"""A policy that leaves this much of a model's nodes leaves enough of its shortlist; a stricter one has all it leaves
looked at."""


def match(
    job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int, compiled: bool | None = None
) -> Decision:
    """Rank the nodes that can have the job, best first, and count why the others cannot."""
    entries = table.entries(job.model)
    if entries is None:
        return Decision(job, policy.name, len(table), without_model=len(table))
    is_compiled = policy.usd_weight is not None and (kernel.ready() if compiled is None else compiled)
    rank: Rank = kernel.rank if is_compiled else partial(scan.rank, score=_score(job, policy))
    asked = question(job, table, at, policy=policy, seed=seed)
    tried = _places_of(at.tried, job, table) if at.tried else NOBODY
    left, barred = (None, {}) if at.allowed is None and not at.own else _left(job, table, entries, at)
    if left is not None and not left.size:
        return Decision(job, policy.name, len(table), without_model=len(table) - len(entries), barred=barred)
    everybody = NOBODY if left is None else left
    named, unlisted = everybody, 0
    if len(entries) > SCAN_MAX and (left is None or left.size > LARGE_SHARE * len(entries)):
        listed = shortlisted(asked, entries, table.shortlists_of(job.model), compiled=is_compiled)
        listed = listed if left is None else _both(listed, left)
        if listed.size:
            named, unlisted = listed, (everybody.size or len(entries)) - listed.size
    ranking = rank(asked, entries, named, tried, k=CANDIDATES_KEPT)
    if unlisted and not ranking.found and table.room.free(job.model):
        named, unlisted = everybody, 0  # somebody has room, if nobody on the list
        ranking = rank(asked, entries, named, tried, k=CANDIDATES_KEPT)
    cached: Mapping[NodeId, int] = {}
    if at.held and policy.usd_weight is not None:
        cached, ranking = _with_holders(
            job, table, entries, ranking, at, left=left, asked=asked, tried=tried, rank=rank
        )
    told, found, counts, stopped = ranking
    if unlisted:
        stopped = b""
    total = len(table)
    return Decision(
        job, policy.name, total, found, told, entries.seated, stopped, counts, unlisted, total - len(entries),
        barred, cached,
    )  # fmt: skip


def _with_holders(
    job: MatchJob,
    table: NodeTable,
    entries: Entries,
    ranking: Ranking,
    at: Situation,
    *,
    left: Places | None,
    asked: Question,
    tried: Places,
    rank: Rank,
) -> tuple[Mapping[NodeId, int], Ranking]:
    """Prefix affinity: who may have the job and holds some of its prompt already, and the ranking that follows."""
    cached = affinity.cached_tokens(job, at.held or {}, table)
    holders, tokens = _places_of(cached, job, table), np.array(list(cached.values()), np.float64)
    may = ~np.isin(holders, tried)
    if left is not None:
        may &= np.isin(holders, left)
    if not may.any():
        return cached, ranking
    return cached, affinity.merged(asked, entries, ranking, holders[may], tokens[may], rank=rank)


def _left(job: MatchJob, table: NodeTable, entries: Entries, at: Situation) -> tuple[Places | None, Mapping[str, int]]:
    """The places that policy and payer leave (None: all), in order, and how many were ruled out by what."""
    places = _seats(at.allowed, job, table, entries) if at.allowed is not None else None
    ruled_out = at.allowed.dropped if at.allowed is not None else {}
    own = _places_of(at.own, job, table) if at.own else NOBODY
    if not own.size:
        return places, ruled_out
    barred = dict(ruled_out)
    keep = np.ones(len(entries), bool)
    keep[own] = False
    before = np.arange(len(entries)) if places is None else places
    after = before[keep[before]]
    if after.size < before.size:
        barred[OWN_NODE] = before.size - after.size
    return after, barred


def _seats(allowed: Allowed, job: MatchJob, table: NodeTable, entries: Entries) -> Places:
    seating = allowed.seating
    if seating is not None and seating.entries is entries and seating.changes == entries.changes:
        return seating.places
    return np.sort(_places_of(allowed.nodes, job, table))


def _both(listed: Places, left: Places) -> Places:
    """Those of a few places that are also among many, which are in order."""
    at = np.minimum(np.searchsorted(left, listed), left.size - 1)
    both: Places = listed[left[at] == listed]
    return both


def question(job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int) -> Question:
    """The job's side of filters and formula."""
    usd_weight, weights = policy.weighed(job.preference)
    now_s, rules = at.now_s, at.rules
    return Question(
        float(job.prompt_tokens),
        float(job.output_tokens),
        float(job.prompt_tokens_floor),
        table.strain_of(job.model),
        usd_weight,
        weights,
        now_s,
        now_s - rules.suspect_after_s,
        now_s - rules.offline_after_s,
        policy.jitter,
        start_of(seed, hash_text(job.id)),
    )


def _score(job: MatchJob, policy: Policy) -> scan.Score | None:
    return partial(scan.neuralgrid_parts, job) if policy.usd_weight is None else None


def _places_of(tried: Collection[NodeId], job: MatchJob, table: NodeTable) -> Places:
    rows = [row for node_id in tried if (row := table.get(node_id)) is not None]
    return np.array([row.seats[job.model].place for row in rows if job.model in row.seats], np.int64)
