"""What a scan is asked and what it answers, with numpy or compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher.entries import Floats
from sparewatt.inference.matcher.filters import Demand
from sparewatt.inference.matcher.formula import JobNumbers, Moment

Places = NDArray[np.int64]
NOBODY: Places = np.empty(0, np.int64)
"""No place is named: for those to look at, that means all."""


class Question(NamedTuple):
    """All that decides a match, besides the nodes' numbers."""

    numbers: JobNumbers
    moment: Moment
    demand: Demand
    jitter: float
    start: int
    """What seed and match put into every node's chance."""
    k: int


class Ranking(NamedTuple):
    """The best places in order, a line of `formula.LINE` for each, and who was stopped by what."""

    places: Places
    lines: Floats
    counts: NDArray[np.int64]
    """How many each of `filters.REASONS` stopped."""
    stops: NDArray[np.int8]
    """By place looked at: the number of what stopped it, or -1."""
    scores: Floats | None = None
    """The parts of each score, where the policy ranks by one."""
