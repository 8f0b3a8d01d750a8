"""What a scan is asked and what it answers, with numpy or compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher.columns import Floats, NodeColumns
from sparewatt.inference.matcher.formula import PARTS, SUMMARY

Positions = NDArray[np.int64]
NOBODY: Positions = np.empty(0, np.int64)
"""No place is named: for those to look at, that means all."""
WIDTH = 1 + len(SUMMARY) + len(PARTS) + 1
"""Numbers that are told of a candidate, by the formula: its place, SUMMARY, parts, jitter."""
AS_THEY_ARE = (1.0,) * len(PARTS)


class MatchQuery(NamedTuple):
    """All that decides a match besides the nodes' numbers: job, moment and chance. Flat, for compiled code."""

    prompt_tokens: float
    output_tokens: float
    floor_tokens: float = 0.0
    """What the prompt holds at the very least."""
    strain: float = 0.0
    """How much the job's model is in demand (see table.strain_of)."""
    usd_weight: float = 0.0
    """Seconds that a dollar is worth."""
    weights: tuple[float, ...] = AS_THEY_ARE
    """What each part of the cost counts for; 1 unless the request said otherwise."""
    now_s: float = 0.0
    silent_since_s: float = -np.inf
    """Who was last heard then or before is suspect."""
    gone_since_s: float = -np.inf
    """Who was last heard then or before is offline."""
    jitter: float = 0.0
    start: int = 0
    """What seed and match put into every node's chance."""


class ScanResult(NamedTuple):
    """The best places in order, what is told about each, and who was stopped by what."""

    told: bytes
    """A line of numbers for each, best first: its place, SUMMARY, parts, jitter."""
    found: int
    """How many there are."""
    counts: Sequence[int] = ()
    """How many each of REASONS stopped; nothing if nobody was."""
    stopped: bytes = b""
    """A line for some of them: place, number of the reason, TOLD_OF_STOPPED."""

    @property
    def lines(self) -> Floats:
        """Without the places."""
        return self._numbers()[:, 1:]

    @property
    def places(self) -> Positions:
        places: Positions = self._numbers()[:, 0].astype(np.int64)
        return places

    def _numbers(self) -> Floats:
        return np.frombuffer(self.told).reshape(self.found, -1 if self.found else WIDTH)


def told_of(places: Positions, lines: Floats) -> bytes:
    """As a ranking keeps them."""
    return np.column_stack((places, lines)).tobytes()


class ScanFunction(Protocol):
    """A scan: `scan.rank`, or `kernel.rank` where it is compiled."""

    def __call__(
        self, job: MatchQuery, entries: NodeColumns, named: Positions, tried: Positions, *, k: int
    ) -> ScanResult: ...
