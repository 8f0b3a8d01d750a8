"""The whole matcher: filter, score, pick. One call, the same answer for the same arguments.

Up to SCAN_MAX nodes of a model are all looked at; beyond that a shortlist, sorted anew four times a second, and a few
nodes drawn by chance. With numba the scan is compiled; the answers are the same without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import CANDIDATES_KEPT
from sparewatt.inference.matcher import affinity, kernel, scan
from sparewatt.inference.matcher.entries import SCAN_MAX, Entries
from sparewatt.inference.matcher.filters import REASONS
from sparewatt.inference.matcher.hashing import hash_text, start_of
from sparewatt.inference.matcher.kept import Ranked, RankedHolders, Stopped
from sparewatt.inference.matcher.model import Allowed, Decision, MatchJob, Rejection
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.question import NOBODY, Places, Question, Rank, Ranking
from sparewatt.inference.matcher.shortlist import shortlisted
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable

OWN_NODE = "own_node"
"""The filter that keeps a job paid with free credits off its payer's own nodes."""


def match(
    job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int, compiled: bool | None = None
) -> Decision:
    """Rank the nodes that can have the job, best first, and count why the others cannot."""
    entries = table.entries(job.model)
    if entries is None:
        return Decision(job, policy.name, len(table), (), (), {Rejection.NO_MODEL: len(table)} if len(table) else {})
    is_compiled = policy.usd_weight is not None and (kernel.ready() if compiled is None else compiled)
    rank: Rank = kernel.rank if is_compiled else partial(scan.rank, score=_score(job, policy))
    asked = question(job, table, at, policy=policy, seed=seed)
    own = _places_of(at.own, job, table) if at.own else NOBODY
    tried = np.union1d(own, _places_of(at.tried, job, table)) if at.tried or at.own else NOBODY
    named, unlisted = NOBODY, 0
    if at.allowed is not None:
        named = _places_of(at.allowed.nodes, job, table)
        if not named.size:
            return _nobody(job, table, entries, at.allowed, policy=policy)
    elif len(entries) > SCAN_MAX:
        named = shortlisted(asked, entries, table.shortlists_of(job.model), compiled=is_compiled)
        unlisted = len(entries) - named.size
    ranking = rank(asked, entries, named, tried, k=CANDIDATES_KEPT)
    if unlisted and not ranking.places.size and table.room.free(job.model):
        named, unlisted = NOBODY, 0  # somebody has room, if nobody on the list
        ranking = rank(asked, entries, named, tried, k=CANDIDATES_KEPT)
    cached = None
    if at.held and policy.usd_weight is not None:
        cached, ranking = _with_holders(job, table, entries, ranking, at, asked=asked, tried=tried, rank=rank)
    decided = _decision(job, table, entries, ranking, policy=policy, named=named, unlisted=unlisted, cached=cached)
    return _with_barred(decided, at, own=own.size) if at.allowed is not None or own.size else decided


def _with_holders(
    job: MatchJob,
    table: NodeTable,
    entries: Entries,
    ranking: Ranking,
    at: Situation,
    *,
    asked: Question,
    tried: Places,
    rank: Rank,
) -> tuple[Mapping[NodeId, int], Ranking]:
    """Prefix affinity: who may have the job and holds some of its prompt already, and the ranking that follows."""
    may = at.allowed.nodes if at.allowed is not None else None
    held = {node_id: tokens for node_id, tokens in (at.held or {}).items() if may is None or node_id in may}
    cached = affinity.cached_tokens(job, held, table)
    holders, tokens = _places_of(cached, job, table), np.array(list(cached.values()), np.float64)
    if tried.size:
        is_new = ~np.isin(holders, tried)
        holders, tokens = holders[is_new], tokens[is_new]
    if not holders.size:
        return cached, ranking
    return cached, affinity.merged(asked, entries, ranking, holders, tokens, rank=rank)


def _nobody(job: MatchJob, table: NodeTable, entries: Entries, allowed: Allowed, *, policy: Policy) -> Decision:
    """A policy that leaves no node."""
    without = len(table) - len(entries)
    dropped = {Rejection.NO_MODEL: without} if without else {}
    return Decision(job, policy.name, len(table), (), (), dropped, allowed.dropped)


def _with_barred(decided: Decision, at: Situation, *, own: int) -> Decision:
    """The payer's own nodes were not tried: they were left out beforehand, and the funnel says so."""
    barred = dict(at.allowed.dropped) if at.allowed is not None else {}
    if own:
        barred[OWN_NODE] = own
        decided.dropped[Rejection.ALREADY_TRIED] = decided.dropped.get(Rejection.ALREADY_TRIED, own) - own
    return replace(decided, barred=barred)


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
        np.uint64(start_of(seed, hash_text(job.id))),
    )


def _score(job: MatchJob, policy: Policy) -> scan.Score | None:
    return partial(scan.neuralgrid_parts, job) if policy.usd_weight is None else None


def _places_of(tried: Collection[NodeId], job: MatchJob, table: NodeTable) -> Places:
    rows = [row for node_id in tried if (row := table.get(node_id)) is not None]
    return np.array([row.seats[job.model].place for row in rows if job.model in row.seats], np.int64)


def _decision(
    job: MatchJob,
    table: NodeTable,
    entries: Entries,
    ranking: Ranking,
    *,
    policy: Policy,
    named: Places,
    unlisted: int,
    cached: Mapping[NodeId, int] | None,
) -> Decision:
    dropped: dict[Rejection, int] = {}
    if any(ranking.counts):
        dropped = {reason: count for reason, count in zip(REASONS, ranking.counts, strict=True) if count}
    rejected = Stopped(job, entries, _stops(ranking, entries, named)) if dropped and not unlisted else ()
    if unlisted:
        dropped[Rejection.NOT_SHORTLISTED] = unlisted
    if len(table) > len(entries):
        dropped[Rejection.NO_MODEL] = len(table) - len(entries)
    places, lines = ranking.places, ranking.lines
    ranked = RankedHolders(entries, places, lines, cached) if cached else Ranked(entries, places, lines)
    return Decision(job, policy.name, len(table), ranked, rejected, dropped)


def _stops(ranking: Ranking, entries: Entries, named: Places) -> NDArray[np.int8]:
    """By place in the entries, also where only some places were named."""
    if not named.size:
        return ranking.stops
    stops = np.full(len(entries), -1, np.int8)
    stops[named] = ranking.stops
    return stops
