"""Prometheus' text format 0.0.4. Pure.

By hand, and not by `prometheus_client`: nearly all figures exist already and are read when scraped, so all that is
needed of a library is this page of text (ADR 27).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from sparewatt.telemetry.metrics.model import Family, Labels, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def render(families: Iterable[Family]) -> bytes:
    return as_page(line for each in families for line in lines_of(each))


def as_page(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def lines_of(each: Family) -> Iterator[str]:
    """A family without samples is left out: nothing is known of it."""
    if each.samples:
        yield f"# HELP {each.name} {each.help.translate(_IN_HELP)}"
        yield f"# TYPE {each.name} {each.kind}"
        yield from (_line(each.name, sample) for sample in each.samples)


def _line(name: str, sample: Sample) -> str:
    return f"{name}{sample.suffix}{_written(sample.labels)} {number(sample.value)}"


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_IN_LABEL)}"' for name, value in labels) + "}"


def number(value: float) -> str:
    """Whole numbers without a fraction; the rest so that it reads back as it was."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
