"""When an attempt is slow, and when it has failed: pure functions of the prediction for the request.

Three marks lie on the way to a first token (or to a whole reply): at the first a second node may be asked as well, at
the second the node has failed if another can take the job, at the third it has failed in any case.
"""

from __future__ import annotations

from typing import NamedTuple

from sparewatt.inference.dispatch.model import DispatchRules

TIMED_JOBS_MIN = 4
"""Fewer timed prompts of a model on a node leave its predictions poor."""


class Deadlines(NamedTuple):
    """In seconds after the attempt began."""

    hedge_s: float
    """A second node may be asked."""
    miss_s: float
    """The node has failed if another can take the job."""
    patience_s: float
    """The node has failed."""


def deadlines(
    rules: DispatchRules, *, predicted_s: float, floor_s: float, finish_s: float = 0.0, p99_s: float | None = None
) -> Deadlines:
    """`p99_s`: what the slowest of a hundred took elsewhere, where the prediction is poor and the model loaded.

    `floor_s` is the shortest patience with a node while no other can take the job. `finish_s`: the predicted end of a
    reply that may come in one piece.
    """
    miss_s = max(rules.first_token_min_s, rules.first_token_factor * predicted_s)
    if p99_s is not None:
        miss_s = min(miss_s, max(rules.first_token_min_s, rules.p99_factor * p99_s))
    patience_s = max(floor_s, rules.first_token_factor * max(predicted_s, finish_s))
    hedge_s = max(rules.hedge_min_s, rules.hedge_factor * predicted_s)
    return Deadlines(min(hedge_s, miss_s), min(miss_s, patience_s), patience_s)


def silence_s(rules: DispatchRules, *, step_s: float, longest_pause_s: float, prompts_s: float) -> float:
    """The silence allowed in an answer that another node could go on with.

    `step_s`: between two tokens, as predicted. `prompts_s`: to read the prompts that this gateway has sent to the node,
    which stall its answers. A node's own pauses allow it longer ones only up to a bound.
    """
    learned_s = min(rules.stall_ceiling_s, max(rules.stall_factor * longest_pause_s, rules.stall_floor_s + prompts_s))
    return min(rules.idle_s, max(rules.stall_floor_s, learned_s, rules.stall_factor * step_s))
