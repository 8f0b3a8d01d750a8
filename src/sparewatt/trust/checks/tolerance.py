"""How early two honest answers may differ, learned from honest pairs. Pure.

Between two honest nodes every piece has the same small chance to be the first that differs, the hazard. It depends on
model, quantization and hardware, so it is learned from pairs of nodes that need not be doubted: how many pieces they
agreed on, and how often they differed. A pair that differs earlier than all but ERROR of honest pairs would fails.
An owner could widen the tolerance by nodes that are trusted and noisy: it is bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparewatt.trust.checks.comparison import Comparison

ERROR = 0.01
"""Of honest pairs, how many differ so early that they would be taken for dishonest, at most."""
MARGIN = 2.0
"""A node may differ so many times as often as the mean of honest pairs: machines are not alike."""
PRIOR_PIECES = 400.0
"""Pieces that one difference is taken to have been seen in before anything was: a hazard of 1 in 200."""
HAZARD_MIN, HAZARD_MAX = 1 / 4_096, 1 / 128
"""At the most that is granted, only a difference in the very first piece is too early."""
DRIFT_ERROR = 1e-4
DRIFT_DIFFERENCES = 3
"""Later differences, none of which fails by itself, are too many together from this many on."""


@dataclass(frozen=True, slots=True)
class HonestPairs:
    """What pairs of honest answers were like."""

    pieces: int = 0
    """That were agreed on."""
    differences: int = 0

    def plus(self, comparison: Comparison) -> HonestPairs:
        return HonestPairs(self.pieces + comparison.agreed, self.differences + comparison.differs)

    @property
    def hazard(self) -> float:
        """The chance of a piece to differ that an honest node is granted."""
        learned = MARGIN * (self.differences + 1) / (self.pieces + PRIOR_PIECES)
        return min(HAZARD_MAX, max(HAZARD_MIN, learned))


NO_PAIRS = HonestPairs()


def is_too_early(comparison: Comparison, *, hazard: float) -> bool:
    """Whether hardly any honest pair differs so early."""
    if not comparison.differs:
        return False
    return -math.expm1((comparison.agreed + 1) * math.log1p(-hazard)) < ERROR


def drifts(past: HonestPairs, *, hazard: float) -> bool:
    """Whether a node's latest comparisons together have more differences than honest ones.

    Finds what is nearly the same model: a coarser quantization of it differs late, and always.
    """
    if past.differences < DRIFT_DIFFERENCES:
        return False
    return _poisson_tail(past.differences, (past.pieces + past.differences) * hazard) < DRIFT_ERROR


def _poisson_tail(at_least: int, mean: float) -> float:
    """The chance of so many or more."""
    term = below = math.exp(-mean)
    for number in range(1, at_least):
        term *= mean / number
        below += term
    return max(0.0, 1.0 - below)
