"""Prometheus' data model and text format 0.0.4: metrics, samples, histograms, and the page that is scraped. Pure.

Not `prometheus_client`: nearly all figures exist already and are read when scraped, so a page of text is all that a
library would add (ADR 27).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labels = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    name: str
    kind: Literal["counter", "gauge", "histogram", "summary"]
    help: str


class Sample(msgspec.Struct, frozen=True, gc=False):
    value: float
    labels: Labels = ()
    suffix: str = ""
    """Of the metric's name: `_bucket`, `_sum`, `_count`."""


class Family(NamedTuple):
    """All samples of one metric."""

    metric: Metric
    samples: Sequence[Sample]


def one(metric: Metric, value: float) -> Family:
    """A family of a single sample."""
    return Family(metric, [Sample(value)])


def labelled(metric: Metric, label: str, counts: Mapping[str, float]) -> Family:
    """A family with one sample for each value of a label."""
    return Family(metric, [Sample(count, ((label, name),)) for name, count in sorted(counts.items())])


class Histogram:
    """Counts per bucket. An observation is a search among a dozen bounds and two additions: cheap enough per job."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: Histogram) -> None:
        """`other` has the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def samples(self, labels: Labels = ()) -> list[Sample]:
        """Buckets are cumulative in Prometheus: each includes all below it."""
        cumulative = list(accumulate(self.counts))
        return [
            *(
                Sample(count, (*labels, ("le", number(bound))), "_bucket")
                for bound, count in zip((*self.bounds, math.inf), cumulative, strict=True)
            ),
            Sample(self.total, labels, "_sum"),
            Sample(cumulative[-1], labels, "_count"),
        ]


def as_page(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def lines_of(family: Family) -> Iterator[str]:
    """A family without samples has no lines: nothing is known of it."""
    metric, samples = family
    if samples:
        yield f"# HELP {metric.name} {metric.help.translate(_HELP_ESCAPES)}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for sample in samples:
            yield f"{metric.name}{sample.suffix}{_label_text(sample.labels)} {number(sample.value)}"


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels) + "}"


def number(value: float) -> str:
    """Whole numbers without a fraction; others so that they read back unchanged."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
