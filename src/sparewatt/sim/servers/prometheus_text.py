"""Writes Prometheus' text format, as far as the servers' pages need it."""

from __future__ import annotations

from collections.abc import Mapping

Labels = Mapping[str, str]


class MetricsText:
    """Families in the order they are added, each with its HELP and TYPE."""

    def __init__(self, *, prefix: str, labels: Labels | None = None) -> None:
        self._prefix = prefix
        self._labels = dict(labels or {})
        self._lines: list[str] = []

    def gauge(self, name: str, help_text: str, value: float, *, labels: Labels | None = None) -> None:
        self._family(name, help_text, "gauge")
        self._sample(name, value, labels)

    def counter(self, name: str, help_text: str, value: float, *, labels: Labels | None = None) -> None:
        self._family(name, help_text, "counter")
        self._sample(name, value, labels)

    def histogram(self, name: str, help_text: str, *, total: float, count: int, labels: Labels | None = None) -> None:
        """Only the last bucket is written: the distribution is not kept."""
        self._family(name, help_text, "histogram")
        self._sample(f"{name}_bucket", count, {**(labels or {}), "le": "+Inf"})
        self._sample(f"{name}_count", count, labels)
        self._sample(f"{name}_sum", total, labels)

    def encode(self) -> bytes:
        return "".join(f"{line}\n" for line in self._lines).encode()

    def _family(self, name: str, help_text: str, kind: str) -> None:
        self._lines += [f"# HELP {self._prefix}:{name} {help_text}", f"# TYPE {self._prefix}:{name} {kind}"]

    def _sample(self, name: str, value: float, labels: Labels | None) -> None:
        pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in {**self._labels, **(labels or {})}.items())
        self._lines.append(f"{self._prefix}:{name}{f'{{{pairs}}}' if pairs else ''} {float(value)}")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
