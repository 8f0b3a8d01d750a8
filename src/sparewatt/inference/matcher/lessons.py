"""What jobs teach about a node's speed: how many times longer something takes than the node's own figures say.

Reading prompts and writing answers are learned apart, for each model of a node, from times that this gateway took. The
figure is a ratio of sums, observed over predicted, in which old lessons fade: a server reads several prompts in one
chunk, so that one seems to take long and the next no time at all, and only their sum is true.
"""

from __future__ import annotations

KEPT = 0.93
"""What is left of the sums at each lesson: the last fourteen or so count."""
LESSON_MAX = 20.0
"""One observation may say that a node is this many times slower than believed, not more."""
SLOWER_MAX = 1e7
"""The farthest that a report's figures can be from the truth."""
AMOUNT_MIN, AMOUNT_MAX = 1e-9, 1e12


class Lessons:
    """Of one model on one node, about reading or about writing."""

    __slots__ = ("_observed", "_predicted", "count", "factor")

    def __init__(self) -> None:
        self.count = 0
        self.factor = 1.0
        """Times longer than the figures say; below 1 the node is faster."""
        self._observed = self._predicted = 0.0

    def add(self, *, observed: float, predicted: float, faster_max: float) -> None:
        """Both are times, or both are steps. `faster_max` bounds how much faster the node can be.

        The first lesson is weighed against the figures themselves.
        """
        if not (AMOUNT_MIN <= predicted <= AMOUNT_MAX and observed >= 0.0):
            return
        if not self.count:
            self._observed = self._predicted = predicted
        self.count += 1
        self._observed = KEPT * self._observed + min(observed, predicted * self.factor * LESSON_MAX)
        self._predicted = KEPT * self._predicted + predicted
        self.factor = min(SLOWER_MAX, max(1.0 / faster_max, self._observed / self._predicted))
