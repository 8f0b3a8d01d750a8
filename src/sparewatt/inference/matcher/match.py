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
from sparewatt.inference.matcher.columns import SCAN_MAX, NodeColumns
from sparewatt.inference.matcher.hashing import hash_text, start_of
from sparewatt.inference.matcher.match_context import MatchContext
from sparewatt.inference.matcher.match_query import NOBODY, MatchQuery, Positions, ScanFunction, ScanResult
from sparewatt.inference.matcher.model import AllowedNodes, Decision, MatchJob
from sparewatt.inference.matcher.ranking import Ranking
from sparewatt.inference.matcher.shortlist import shortlisted
from sparewatt.inference.matcher.table import NodeTable

OWN_NODE = "own_node"
"""The filter that keeps a job paid with free credits off its payer's own nodes."""

LARGE_SHARE = 0.75
"""A policy that leaves this much of a model's nodes leaves enough of its shortlist; a stricter one has all it leaves
looked at."""


def match(
    job: MatchJob, table: NodeTable, at: MatchContext, *, ranking: Ranking, seed: int, compiled: bool | None = None
) -> Decision:
    """Rank the nodes that can have the job, best first, and count why the others cannot."""
    entries = table.entries(job.model)
    if entries is None:
        return Decision(job, ranking.name, len(table), without_model=len(table))
    is_compiled = ranking.usd_weight is not None and (kernel.ready() if compiled is None else compiled)
    rank: ScanFunction = kernel.rank if is_compiled else partial(scan.rank, score=_score(job, ranking))
    asked = question(job, table, at, ranking=ranking, seed=seed)
    tried = _places_of(at.tried, job, table) if at.tried else NOBODY
    left, barred = (None, {}) if at.allowed is None and not at.own else _left(job, table, entries, at)
    if left is not None and not left.size:
        return Decision(job, ranking.name, len(table), without_model=len(table) - len(entries), barred=barred)
    everybody = NOBODY if left is None else left
    named, unlisted = everybody, 0
    if len(entries) > SCAN_MAX and (left is None or left.size > LARGE_SHARE * len(entries)):
        listed = shortlisted(asked, entries, table.shortlists_of(job.model), compiled=is_compiled)
        listed = listed if left is None else _both(listed, left)
        if listed.size:
            named, unlisted = listed, (everybody.size or len(entries)) - listed.size
    result = rank(asked, entries, named, tried, k=CANDIDATES_KEPT)
    if unlisted and not result.found and table.capacity.free(job.model):
        named, unlisted = everybody, 0  # somebody has room, if nobody on the list
        result = rank(asked, entries, named, tried, k=CANDIDATES_KEPT)
    cached: Mapping[NodeId, int] = {}
    if at.held and ranking.usd_weight is not None:
        cached, result = _with_holders(job, table, entries, result, at, left=left, asked=asked, tried=tried, rank=rank)
    told, found, counts, stopped = result
    if unlisted:
        stopped = b""
    total = len(table)
    return Decision(
        job, ranking.name, total, found, told, entries.seated, stopped, counts, unlisted, total - len(entries),
        barred, cached,
    )  # fmt: skip


def _with_holders(
    job: MatchJob,
    table: NodeTable,
    entries: NodeColumns,
    result: ScanResult,
    at: MatchContext,
    *,
    left: Positions | None,
    asked: MatchQuery,
    tried: Positions,
    rank: ScanFunction,
) -> tuple[Mapping[NodeId, int], ScanResult]:
    """Prefix affinity: who may have the job and holds some of its prompt already, and the ranking that follows."""
    cached = affinity.cached_tokens(job, at.held or {}, table)
    holders, tokens = _places_of(cached, job, table), np.array(list(cached.values()), np.float64)
    may = ~np.isin(holders, tried)
    if left is not None:
        may &= np.isin(holders, left)
    if not may.any():
        return cached, result
    return cached, affinity.merged(asked, entries, result, holders[may], tokens[may], rank=rank)


def _left(
    job: MatchJob, table: NodeTable, entries: NodeColumns, at: MatchContext
) -> tuple[Positions | None, Mapping[str, int]]:
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


def _seats(allowed: AllowedNodes, job: MatchJob, table: NodeTable, entries: NodeColumns) -> Positions:
    seating = allowed.seating
    if seating is not None and seating.entries is entries and seating.changes == entries.changes:
        return seating.places
    return np.sort(_places_of(allowed.nodes, job, table))


def _both(listed: Positions, left: Positions) -> Positions:
    """Those of a few places that are also among many, which are in order."""
    at = np.minimum(np.searchsorted(left, listed), left.size - 1)
    both: Positions = listed[left[at] == listed]
    return both


def question(job: MatchJob, table: NodeTable, at: MatchContext, *, ranking: Ranking, seed: int) -> MatchQuery:
    """The job's side of filters and formula."""
    usd_weight, weights = ranking.weighed(job.preference)
    now_s, rules = at.now_s, at.rules
    return MatchQuery(
        float(job.prompt_tokens),
        float(job.output_tokens),
        float(job.prompt_tokens_floor),
        table.strain_of(job.model),
        usd_weight,
        weights,
        now_s,
        now_s - rules.suspect_after_s,
        now_s - rules.offline_after_s,
        ranking.jitter,
        start_of(seed, hash_text(job.id)),
    )


def _score(job: MatchJob, ranking: Ranking) -> scan.Score | None:
    return partial(scan.neuralgrid_parts, job) if ranking.usd_weight is None else None


def _places_of(tried: Collection[NodeId], job: MatchJob, table: NodeTable) -> Positions:
    rows = [row for node_id in tried if (row := table.get(node_id)) is not None]
    return np.array([row.seats[job.model].place for row in rows if job.model in row.seats], np.int64)
