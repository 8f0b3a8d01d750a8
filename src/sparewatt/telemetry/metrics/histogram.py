"""Counts per bucket. An observation is a search among a dozen bounds and two additions: fit for a job's path."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from sparewatt.telemetry.metrics.exposition import number
from sparewatt.telemetry.metrics.model import Labels, Sample

TIMES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Until a first token, or in line: from a local model to the moment where clients give up."""
LONG_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Of whole answers: up to the longest that a job may take."""
TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
"""Between two tokens: from a thousand a second to one."""
MATCH_S = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1)
"""Of a choice among nodes, which takes microseconds."""
LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
CANDIDATES = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 1000.0, 10_000.0)


class Histogram:
    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: Histogram) -> None:
        """One with the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def samples(self, labels: Labels = ()) -> Iterator[Sample]:
        """As Prometheus wants them: each bucket with all that is below it."""
        upto = list(accumulate(self.counts))
        for bound, count in zip((*self.bounds, float("inf")), upto, strict=True):
            yield Sample(count, (*labels, ("le", number(bound))), "_bucket")
        yield Sample(self.total, labels, "_sum")
        yield Sample(upto[-1], labels, "_count")
