"""Figures as they are scraped: families of samples. Plain data, so that several processes' can be put together."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

Kind = Literal["counter", "gauge", "histogram", "summary"]
Labels = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """What a family is: its name, how its values move, and what they mean."""

    name: str
    kind: Kind
    help: str


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    value: float
    labels: Labels = ()
    suffix: str = ""
    """Of the family's name: `_bucket`, `_sum`, `_count`."""


class Family(msgspec.Struct, frozen=True, array_like=True):
    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]


Samples = list[Family]


def family(metric: Metric, *samples: Sample) -> Family:
    return Family(metric.name, metric.kind, metric.help, samples)


def one(metric: Metric, value: float) -> Family:
    """A family of a single figure."""
    return family(metric, Sample(value))
