"""The whole matcher: filter, score, pick. One call, the same answer for the same arguments.

Up to SCAN_MAX nodes of a model are all looked at; beyond that a shortlist, sorted anew four times a second, and a few
nodes drawn by chance. With numba the scan is compiled; the answers are the same without it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import numpy as np

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import CANDIDATES_KEPT
from sparewatt.inference.matcher import kernel, scan
from sparewatt.inference.matcher.entries import SCAN_MAX, Entries
from sparewatt.inference.matcher.filters import REASONS, demand_of
from sparewatt.inference.matcher.formula import LINE, PARTS, Moment
from sparewatt.inference.matcher.hashing import hash_text, start_of
from sparewatt.inference.matcher.model import Candidate, Decision, MatchJob, Rejection
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.ranking import NOBODY, Places, Question, Ranking
from sparewatt.inference.matcher.shortlist import shortlisted
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.stopped import write_down
from sparewatt.inference.matcher.table import NodeTable

NANO = 1e9
HALF_A_STEP = 5e-7
"""Prices per million tokens come in millionths of a nano: rounding down must not slip below a whole one."""
_PARTS_FROM = len(LINE) - len(PARTS) - 1


def match(
    job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int, compiled: bool | None = None
) -> Decision:
    """Rank the nodes that can have the job, best first, and count why the others cannot."""
    entries = table.entries(job.model)
    if entries is None:
        return Decision(job, policy.name, len(table), (), {Rejection.NO_MODEL: len(table)} if len(table) else {})
    is_compiled = policy.usd_weight is not None and (kernel.ready() if compiled is None else compiled)
    ask = question(job, table, at, policy=policy, seed=seed)
    tried = _places_of(at.tried, job, table) if at.tried else NOBODY
    named = NOBODY
    if len(entries) > SCAN_MAX:
        named = shortlisted(ask, entries, table.shortlists_of(job.model), compiled=is_compiled)
    ranking = _rank(job, ask, entries, named, tried, policy=policy, compiled=is_compiled)
    if named.size and not ranking.places.size and table.room.free(job.model):
        named = NOBODY
        ranking = _rank(job, ask, entries, named, tried, policy=policy, compiled=is_compiled)
    return _decision(job, table, entries, named, ranking, policy)


def question(job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int) -> Question:
    return Question(
        policy.numbers(job, strain=table.strain_of(job.model)),
        Moment(at.now_s, at.now_s - at.rules.suspect_after_s),
        demand_of(job, at),
        policy.jitter,
        start_of(seed, hash_text(job.id)),
        CANDIDATES_KEPT,
    )


def _places_of(tried: Collection[NodeId], job: MatchJob, table: NodeTable) -> Places:
    rows = [row for node_id in tried if (row := table.get(node_id)) is not None]
    return np.array([row.places[job.model] for row in rows if job.model in row.places], np.int64)


def _rank(  # noqa: PLR0917
    job: MatchJob, ask: Question, entries: Entries, named: Places, tried: Places, *, policy: Policy, compiled: bool
) -> Ranking:
    if compiled:
        return kernel.rank(ask, entries, named, tried)
    score = partial(scan.neuralgrid_parts, job) if policy.usd_weight is None else None
    return scan.rank(ask, entries, named, tried, score)


def _decision(  # noqa: PLR0917
    job: MatchJob, table: NodeTable, entries: Entries, named: Places, ranking: Ranking, policy: Policy
) -> Decision:
    dropped = {reason: count for reason, count in zip(REASONS, ranking.counts.tolist(), strict=True) if count}
    stopped = write_down(entries, ranking.stops) if dropped and not named.size else None
    if named.size:
        dropped[Rejection.NOT_SHORTLISTED] = len(entries) - named.size
    if len(table) > len(entries):
        dropped[Rejection.NO_MODEL] = len(table) - len(entries)
    return Decision(job, policy.name, len(table), _candidates(entries, ranking), dropped, stopped)


def _candidates(entries: Entries, ranking: Ranking) -> tuple[Candidate, ...]:
    nodes, lines = entries.nodes, ranking.lines.tolist()
    parts = [line[_PARTS_FROM:] for line in lines]
    if ranking.scores is not None:
        parts = [[*score, 0.0] for score in ranking.scores.tolist()]
    return tuple(
        [
            Candidate(nodes[place], line[0], tuple(part), line[1], line[2], int(line[3] * NANO + HALF_A_STEP))
            for place, line, part in zip(ranking.places.tolist(), lines, parts, strict=True)
        ]
    )
