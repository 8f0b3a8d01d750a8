"""Figures from a `/metrics` page in Prometheus' text format, as far as adapters need them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from sparewatt.node.backends.backend import BackendTotals

LINES_MAX = 20_000
TOTAL_MAX = 1e18
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?\s*\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class PrometheusPage:
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

    def sum(self, *names: str) -> float | None:
        """Over all labels, by the first of these names that is there."""
        samples = next((self._samples[name] for name in names if name in self._samples), None)
        return sum(value for _, value in samples) if samples else None

    def count(self, *names: str) -> int | None:
        """As `sum`, of things that are counted."""
        total = self.sum(*names)
        return None if total is None else max(0, min(100_000, round(total)))

    def total(self, *names: str) -> float | None:
        """As `sum`, of what only ever grows, within what a report may say."""
        total = self.sum(*names)
        return None if total is None else max(0.0, min(TOTAL_MAX, total))

    def share(self, *names: str) -> float | None:
        """The largest, within 0 and 1."""
        samples = next((self._samples[name] for name in names if name in self._samples), None)
        return max(0.0, min(1.0, max(value for _, value in samples))) if samples else None

    def labels(self, name: str) -> Mapping[str, str]:
        samples = self._samples.get(name)
        return dict(_LABEL.findall(samples[0][0])) if samples else {}


def positive_int(text: str | None) -> int | None:
    """A label's value, if it is a whole number above zero."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and 0 < int(text) <= 1 << 40 else None


def totals_of(page: PrometheusPage, prefix: str) -> BackendTotals:
    """vLLM and SGLang call them the same."""
    return BackendTotals(
        prompt_tokens=page.total(f"{prefix}:prompt_tokens_total"),
        generation_tokens=page.total(f"{prefix}:generation_tokens_total"),
        first_token_s=page.total(f"{prefix}:time_to_first_token_seconds_sum"),
        first_tokens=page.total(f"{prefix}:time_to_first_token_seconds_count"),
        request_s=page.total(f"{prefix}:e2e_request_latency_seconds_sum"),
        requests=page.total(f"{prefix}:e2e_request_latency_seconds_count"),
    )
