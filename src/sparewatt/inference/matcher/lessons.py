"""What jobs teach about a node's speed: how many times longer something takes than the node's own figures say.

Reading prompts and writing answers are learned apart, for each model of a node, from times that this gateway took.
Lessons are logarithms of observed over predicted time. Each counts by a share that falls to LEARN_AT_LEAST, so that old
ones fade; one alone cannot move the figure far.
"""

from __future__ import annotations

import math

LEARN_AT_LEAST = 0.08
LESSON_MAX = 3.0
"""One observation may say that a node is twenty times slower than believed, not more."""
SLOWER_LOG_MAX = 16.0
"""Ten million times slower than it says: the farthest that a report's figures can be from the truth."""


class Lessons:
    """Of one model on one node, about reading or about writing."""

    __slots__ = ("_log", "count", "factor")

    def __init__(self) -> None:
        self.count = 0
        self.factor = 1.0
        """Times longer than the figures say; below 1 the node is faster."""
        self._log = 0.0

    def add(self, *, observed: float, predicted: float, faster_max: float) -> None:
        """Both are times, or both are inverse rates. `faster_max` bounds how much faster the node can be."""
        if not (predicted > 0.0 and observed > 0.0):
            return
        seen = min(SLOWER_LOG_MAX, math.log(observed) - math.log(predicted))
        lesson = min(LESSON_MAX, max(-LESSON_MAX, seen - self._log))
        self._log += lesson * max(LEARN_AT_LEAST, 1.0 / (2 + self.count))
        self._log = max(self._log, -math.log(faster_max))
        self.count += 1
        self.factor = math.exp(self._log)
