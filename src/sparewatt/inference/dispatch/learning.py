"""What a finished answer says about a node's speed. What is learned from it can lower a claim, never raise it.

Only the time from the first token to the last counts: the wait before it is the queue's fault, or the network's.
"""

from __future__ import annotations

import math

from sparewatt.inference.matcher.model import Candidate, MatchJob, NodeRow

STEPS_MIN = 7
"""Fewer tokens than eight tell more about the network than about the node."""


def predicted_step_s(candidate: Candidate, job: MatchJob, row: NodeRow | None) -> float:
    """Seconds per token by the node's own figures and its company, without what was learned about it so far."""
    writing_s = candidate.predicted_finish_s - candidate.predicted_ttft_s
    learned_speed = math.exp(-max(0.0, row.slowness)) if row else 1.0
    return writing_s / max(1, job.output_tokens) * learned_speed
