"""A match in which nodes that this network has not timed get their small share, and no more. Pure.

The timed nodes are ranked first. A newcomer gets the job instead if it is time for a trial, or if none of the timed can
have it; if all of those have long queues, newcomers compete with them, as fast as the median. What a newcomer says of
its own speed can only cost it a trial.
"""

from __future__ import annotations

from msgspec.structs import replace

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.columns import Standing
from sparewatt.inference.matcher.formula import PARTS, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import (
    CANDIDATES_KEPT,
    AllowedNodes,
    Candidate,
    Decision,
    MatchContext,
    MatchJob,
)
from sparewatt.inference.matcher.newcomers import (
    FIRST_JOBS_MAX,
    OVERFLOW_WAIT_S,
    TRIAL_LATER_S,
    TRIAL_SLOWER_MAX,
)
from sparewatt.inference.matcher.table import NodeTable

_QUEUE = PARTS.index("queue")


def match_fairly(
    job: MatchJob,
    table: NodeTable,
    context: MatchContext,
    *,
    ranking: Ranking,
    seed: int,
    near: str | None = None,
    is_trial: bool = True,
) -> Decision:
    """As `match`. `is_trial`: whether the job may be a trial at all; a second attempt is none. A check never is."""

    def match_with(standing: Standing) -> Decision:
        return match(job, table, replace(context, standing=standing), ranking=ranking, seed=seed, near=near)

    is_plain = context.standing < Standing.WAITING or ranking.usd_weight is None
    if is_plain or not table.newcomers.count(job.model):
        return match(job, table, context, ranking=ranking, seed=seed, near=near)
    timed = match_with(Standing.TIMED)
    best = timed.best
    if best is None:
        shared = _in_turn(job, table, context, ranking=ranking, seed=seed, near=near)
        return match_with(Standing.WAITING) if shared is None else shared
    if is_trial and not context.tried and table.newcomers.may_try(job.model):
        tried = _in_turn(job, table, context, ranking=ranking, seed=seed, near=near, best=best)
        if tried is not None:
            return tried
    if best.parts[_QUEUE] > OVERFLOW_WAIT_S:
        return match_with(Standing.NEWCOMER)
    return timed


def _in_turn(
    job: MatchJob,
    table: NodeTable,
    context: MatchContext,
    *,
    ranking: Ranking,
    seed: int,
    near: str | None,
    best: Candidate | None = None,
) -> Decision | None:
    """The newcomer whose turn it is leads the decision; None if none of the next few can have the job.

    `best`: of the timed nodes. Without one, newcomers with room for a first job come first, then all.
    """

    def may(node_id: NodeId) -> bool:
        return best is None or _may_be_tried(job, table, node_id, best, now_s=context.now_s)

    allowed, turn = context.allowed, table.newcomers.turn(job.model, may)
    nodes = frozenset(turn if allowed is None else allowed.nodes.intersection(turn))
    if not nodes:
        return None
    next_few = AllowedNodes(nodes, {} if allowed is None else allowed.rejected_by_field)
    for least in (Standing.NEWCOMER, Standing.WAITING):
        for among in (allowed, next_few):  # all nodes if they are few, so that an explanation names them
            at = replace(context, standing=least, allowed=among)
            decision = match(job, table, at, ranking=ranking, seed=seed, near=near)
            able = nodes.intersection(candidate.node_id for candidate in decision.ranked)
            if able and (among is next_few or decision.ranked_count < CANDIDATES_KEPT):
                return decision.led_by(next(node for node in turn if node in able))
    return None


def _may_be_tried(job: MatchJob, table: NodeTable, node_id: NodeId, best: Candidate, *, now_s: float) -> bool:
    """Whether a newcomer has room, and by its own word would not be much later than the best of the timed nodes."""
    row = table.get(node_id)
    if row is None or row.own_active.get(job.model, 0) >= FIRST_JOBS_MAX:
        return False
    figures = row.positions[job.model].figures
    finish_s = row.rtt_s + figures.prefill_s(job.prompt_tokens) + job.output_tokens * figures.step_s
    is_soon = finish_s <= TRIAL_SLOWER_MAX * best.predicted_finish_s + TRIAL_LATER_S
    return is_soon and not table.is_shut(node_id, job.model, now_s=now_s)
