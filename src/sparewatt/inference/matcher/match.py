"""The matcher in one call: filter, score, pick. The same arguments give the same decision.

Up to SCAN_MAX nodes of a model are all looked at; beyond that a shortlist and a random sample. The scan is compiled
where the package has a library for the platform; the decisions are the same with numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import numpy as np

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher import affinity, kernel, scan
from sparewatt.inference.matcher.columns import NO_POSITIONS, SCAN_MAX, NodeColumns, Positions
from sparewatt.inference.matcher.formula import Ranking, hash_text, jitter_seed
from sparewatt.inference.matcher.model import CANDIDATES_KEPT, AllowedNodes, Decision, MatchContext, MatchJob
from sparewatt.inference.matcher.nearness import NearbyRank
from sparewatt.inference.matcher.scan import MatchQuery, ScanFunction, ScanResult
from sparewatt.inference.matcher.shortlist import shortlisted
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.matcher.unseen import spread

OWN_NODE = "own_node"
"""The filter that keeps a job paid with free credits off its payer's own nodes."""
LARGE_SHARE = 0.75
"""A policy that leaves this share of a model's nodes leaves enough of its shortlist; a stricter one has all scanned."""


def match(
    job: MatchJob,
    table: NodeTable,
    context: MatchContext,
    *,
    ranking: Ranking,
    seed: int,
    near: str | None = None,
    compiled: bool | None = None,
) -> Decision:
    """Rank the nodes that can have the job, best first, and count why the others cannot.

    `near`: a country or group of the vocabulary; nodes farther from it cost more. A ranking that scores ignores it.
    """
    columns = table.columns_of(job.model)
    if columns is None:
        return Decision(job, ranking.name, len(table), without_model=len(table))
    is_compiled = ranking.usd_weight is not None and (kernel.ready() if compiled is None else compiled)
    rank: ScanFunction = kernel.rank if is_compiled else partial(scan.rank, score=_score(job, ranking))
    nearby = NearbyRank(rank, near, table.zones.by_index) if near and ranking.usd_weight is not None else None
    rank = rank if nearby is None else nearby
    query = make_query(job, context, ranking=ranking, seed=seed)
    tried = _positions_of(context.tried, job, table) if context.tried else NO_POSITIONS
    allowed, by_policy = _allowed(job, table, columns, context)
    if allowed is not None and not allowed.size:
        without_model = len(table) - len(columns)
        return Decision(job, ranking.name, len(table), without_model=without_model, rejected_by_policy=by_policy)
    everyone = NO_POSITIONS if allowed is None else allowed
    subset, not_shortlisted = everyone, 0
    if len(columns) > SCAN_MAX and (allowed is None or allowed.size > LARGE_SHARE * len(columns)):
        listed = shortlisted(query, columns, table.shortlists_of(job.model), compiled=is_compiled)
        listed = listed if allowed is None else _intersect(listed, allowed)
        if nearby is not None:
            listed = np.union1d(listed, nearby.nearest(query, columns, everyone))
        if listed.size:
            subset, not_shortlisted = listed, (everyone.size or len(columns)) - listed.size
    result = rank(query, columns, subset, tried, k=CANDIDATES_KEPT)
    if not_shortlisted and not result.n_ranked and table.capacity.free(job.model):
        not_shortlisted = 0  # the shortlist is full, and another node is free
        result = rank(query, columns, everyone, tried, k=CANDIDATES_KEPT)
    cached: Mapping[NodeId, int] = {}
    if context.prefix_tokens and ranking.usd_weight is not None:
        cached = affinity.cached_tokens(job, context.prefix_tokens, table)
        result = _with_affinity(
            job, table, columns, result, cached, allowed=allowed, query=query, tried=tried, rank=rank
        )
    if ranking.usd_weight is not None and (foreign := table.unseen.rate(job.model, context.now_s)):
        result = spread(query, result, foreign)
    rows, n_ranked, rejected_counts, rejected_rows = result
    if not_shortlisted:
        rejected_rows = b""
    total = len(table)
    return Decision(
        job, ranking.name, total, n_ranked, rows, columns.node_ids, rejected_rows, rejected_counts, not_shortlisted,
        total - len(columns), by_policy, cached,
    )  # fmt: skip


def _with_affinity(
    job: MatchJob,
    table: NodeTable,
    columns: NodeColumns,
    result: ScanResult,
    cached: Mapping[NodeId, int],
    *,
    allowed: Positions | None,
    query: MatchQuery,
    tried: Positions,
    rank: ScanFunction,
) -> ScanResult:
    """The ranking, with the nodes that have some of the prompt cached and may have the job priced again."""
    holders, tokens = _positions_of(cached, job, table), np.array(list(cached.values()), np.float64)
    may = ~np.isin(holders, tried)
    if allowed is not None:
        may &= np.isin(holders, allowed)
    if not may.any():
        return result
    return affinity.merge_holders(query, columns, result, holders[may], tokens[may], rank=rank)


def _allowed(
    job: MatchJob, table: NodeTable, columns: NodeColumns, context: MatchContext
) -> tuple[Positions | None, Mapping[str, int]]:
    """The positions that policy and payer leave (None: all), in order, and how many were ruled out by what."""
    if context.allowed is None and not context.payer_nodes:
        return None, {}
    positions = _allowed_by_policy(context.allowed, job, table, columns) if context.allowed is not None else None
    rejected = context.allowed.rejected_by_field if context.allowed is not None else {}
    own = _positions_of(context.payer_nodes, job, table) if context.payer_nodes else NO_POSITIONS
    if not own.size:
        return positions, rejected
    keep = np.ones(len(columns), bool)
    keep[own] = False
    before = np.arange(len(columns)) if positions is None else positions
    after = before[keep[before]]
    if after.size < before.size:
        rejected = {**rejected, OWN_NODE: before.size - after.size}
    return after, rejected


def _allowed_by_policy(allowed: AllowedNodes, job: MatchJob, table: NodeTable, columns: NodeColumns) -> Positions:
    known = allowed.positions
    if known is not None and known.columns is columns and known.membership_version == columns.membership_version:
        return known.positions
    return np.sort(_positions_of(allowed.nodes, job, table))


def _intersect(few: Positions, many: Positions) -> Positions:
    """Those of a few positions that are also among many, which are in ascending order."""
    at = np.minimum(np.searchsorted(many, few), many.size - 1)
    both: Positions = few[many[at] == few]
    return both


def make_query(job: MatchJob, context: MatchContext, *, ranking: Ranking, seed: int) -> MatchQuery:
    usd_weight, weights = ranking.weights(job.preference)
    now_s, rules = context.now_s, context.rules
    return MatchQuery(
        float(job.prompt_tokens),
        float(job.output_tokens),
        float(job.prompt_tokens_floor),
        usd_weight,
        weights,
        now_s,
        now_s - rules.suspect_after_s,
        now_s - rules.offline_after_s,
        ranking.jitter,
        jitter_seed(seed, hash_text(job.id)),
        context.standing,
    )


def _score(job: MatchJob, ranking: Ranking) -> scan.Score | None:
    return partial(scan.neuralgrid_parts, job) if ranking.usd_weight is None else None


def _positions_of(nodes: Collection[NodeId], job: MatchJob, table: NodeTable) -> Positions:
    rows = [row for node_id in nodes if (row := table.get(node_id)) is not None]
    return np.array([row.positions[job.model].index for row in rows if job.model in row.positions], np.int64)
