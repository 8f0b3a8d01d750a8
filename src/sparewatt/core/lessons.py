"""What jobs teach about a node's speed: how many times longer something takes than the node's own figures say.

Reading prompts and writing answers are learned apart, for each model of a node: by a gateway from times that it took
itself, and by the node, which refuses a job that would be late. The figure is a ratio of sums, observed over predicted,
in which old lessons fade: a server reads several prompts in one chunk, so that one seems to take long and the next no
time at all, and only their sum is true.
"""

from __future__ import annotations

KEPT = 0.93
"""What is left of the sums at each lesson: the last fourteen or so count."""
LESSON_MAX = 20.0
"""One observation may say that a node is this many times slower than believed, not more."""
SLOWER_MAX = 1e7
"""The farthest that a report's figures can be from the truth."""
AMOUNT_MIN, AMOUNT_MAX = 1e-9, 1e12
ENOUGH = 3
"""So many lessons stand alone: from then on the node's own figures, which are a stranger's word, no longer count."""
RESTORED_MAX = 14
"""As many lessons as fade slowly enough to be remembered."""


class Lessons:
    """Of one model on one node, about reading or about writing."""

    __slots__ = ("_figures", "_observed", "_predicted", "count", "factor")

    def __init__(self) -> None:
        self.count = 0
        self.factor = 1.0
        """Times longer than the figures say; below 1 the node is faster."""
        self._observed = self._predicted = 0.0
        self._figures = 0.0
        """What of both sums is the node's own figures."""

    @classmethod
    def restored(cls, *, factor: float, count: int, amount: float) -> Lessons:
        """As they were before the node left; `amount` is what one lesson usually weighs."""
        lessons = cls()
        lessons.count, lessons.factor = count, min(SLOWER_MAX, max(1.0 / SLOWER_MAX, factor))
        lessons._predicted = amount * min(count, RESTORED_MAX)
        lessons._observed = lessons._predicted * lessons.factor
        return lessons

    def scale(self, by: float) -> None:
        """The figures became this many times faster: what was learned stays true of the node."""
        self._observed *= by
        self._figures = 0.0
        self.factor = min(SLOWER_MAX, max(1.0 / SLOWER_MAX, self.factor * by))

    def add(self, *, observed: float, predicted: float, faster_max: float, least: float = 0.0) -> None:
        """Both are times, or both are steps. `faster_max` bounds how much faster the node can be, `least` is the factor
        that it is believed to have at the least.

        The first lessons are weighed against the figures themselves.
        """
        if not (AMOUNT_MIN <= predicted <= AMOUNT_MAX and observed >= 0.0):
            return
        if not self.count:
            self._observed = self._predicted = self._figures = predicted
        self.count += 1
        self._observed = KEPT * self._observed + min(observed, predicted * max(self.factor, least) * LESSON_MAX)
        self._predicted = KEPT * self._predicted + predicted
        if self._figures:
            self._figures *= KEPT
            if self.count >= ENOUGH:
                self._observed -= self._figures
                self._predicted -= self._figures
                self._figures = 0.0
        self.factor = min(SLOWER_MAX, max(1.0 / faster_max, self._observed / self._predicted))
