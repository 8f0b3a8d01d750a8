"""Reads a `/metrics` page in Prometheus' text format, as far as the adapters need it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from sparewatt.node.backends.backend import BackendTotals

LINES_MAX = 20_000
SAMPLES_MAX = 1024
TOTAL_MAX = 1e18
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?\s*\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class PrometheusPage:
    """Each figure is looked up by several names: the first that the page has counts."""

    def __init__(self, page: bytes) -> None:
        self._samples: dict[str, list[tuple[str, float]]] = {}
        for line in page.decode(errors="replace").splitlines()[:LINES_MAX]:
            self._add_sample(line)

    def _add_sample(self, line: str) -> None:
        found = _LINE.match(line)
        if found is None:
            return
        try:
            value = float(found[3])
        except ValueError:
            return
        if math.isfinite(value):
            self._samples.setdefault(found[1], []).append((found[2] or "", value))

    def count(self, *names: str) -> int | None:
        """The sum over all labels, of a gauge that counts things."""
        values = self._values(names)
        return max(0, min(100_000, round(sum(values)))) if values else None

    def total(self, *names: str) -> float | None:
        """The sum over all labels, of a counter, within what a report may say."""
        values = self._values(names)
        return max(0.0, min(TOTAL_MAX, sum(values))) if values else None

    def share(self, *names: str) -> float | None:
        """The largest, within 0 and 1."""
        values = self._values(names)
        return max(0.0, min(1.0, max(values))) if values else None

    def labels(self, name: str) -> list[Mapping[str, str]]:
        """Of every sample of that name."""
        return [dict(_LABEL.findall(labels)) for labels, _ in self._samples.get(name, ())[:SAMPLES_MAX]]

    def _values(self, names: tuple[str, ...]) -> list[float]:
        samples = next((self._samples[name] for name in names if name in self._samples), ())
        return [value for _, value in samples]


def positive_int(text: str | None) -> int | None:
    """A label's value, if it is a whole number above zero."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and 0 < int(text) <= 1 << 40 else None


def totals_of(page: PrometheusPage, prefix: str) -> BackendTotals:
    """vLLM and SGLang use the same names after their prefix."""
    return BackendTotals(
        prompt_tokens=page.total(f"{prefix}:prompt_tokens_total"),
        generation_tokens=page.total(f"{prefix}:generation_tokens_total"),
        first_token_s=page.total(f"{prefix}:time_to_first_token_seconds_sum"),
        first_tokens=page.total(f"{prefix}:time_to_first_token_seconds_count"),
        request_s=page.total(f"{prefix}:e2e_request_latency_seconds_sum"),
        requests=page.total(f"{prefix}:e2e_request_latency_seconds_count"),
    )
