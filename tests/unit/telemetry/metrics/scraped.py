"""A strict reader of Prometheus' text format: what it takes, Prometheus takes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Labels = frozenset[tuple[str, str]]
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|\})')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}
_ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass
class Scraped:
    kinds: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def sum(self, name: str, **labels: str) -> float:
        """Over all other labels."""
        wanted = frozenset(labels.items())
        return sum(value for (found, of), value in self.samples.items() if found == name and wanted <= of)

    def labels(self, name: str, label: str) -> set[str]:
        return {dict(of)[label] for found, of in self.samples if found == name and label in dict(of)}


def read(page: bytes | str) -> Scraped:
    """Raises AssertionError for whatever is not as the format wants it."""
    text = page.decode() if isinstance(page, bytes) else page
    assert text.endswith("\n")
    found = Scraped()
    current = ""
    closed: set[str] = set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, said = line.removeprefix("# HELP ").partition(" ")
            assert name not in found.helps, f"{name} is described twice"
            assert _NAME.fullmatch(name)
            found.helps[name] = said
            closed.add(current)
            current = name
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name == current, "a family's lines stand together"
            assert kind in {"counter", "gauge", "histogram", "summary"}
            found.kinds[name] = kind
        else:
            name, labels, value = _sample(line)
            assert name.removeprefix(current) in _SUFFIXES.get(found.kinds[current], ("",)), line
            assert current not in closed
            assert (name, labels) not in found.samples, f"twice: {line}"
            found.samples[name, labels] = value
    _check_histograms(found)
    return found


def _sample(line: str) -> tuple[str, Labels, float]:
    matched = _NAME.match(line)
    assert matched is not None, line
    at, labels = matched.end(), {}
    if line[at] == "{":
        at += 1
        while True:
            label = _LABEL.match(line, at)
            assert label is not None, line
            assert label[1] not in labels, line
            labels[label[1]] = re.sub(r"\\.", lambda escaped: _ESCAPED[escaped[0]], label[2])
            at = label.end()
            if label[3] == "}":
                break
    assert line[at] == " ", line
    return matched[0], frozenset(labels.items()), float(line[at + 1 :])


def _check_histograms(found: Scraped) -> None:
    """Buckets never fall, and the last holds all."""
    buckets: dict[tuple[str, Labels], list[tuple[float, float]]] = {}
    for (name, labels), value in found.samples.items():
        if name.endswith("_bucket"):
            rest = frozenset(each for each in labels if each[0] != "le")
            buckets.setdefault((name.removesuffix("_bucket"), rest), []).append((float(dict(labels)["le"]), value))
    for (name, labels), counts in buckets.items():
        counts.sort()
        values = [count for _, count in counts]
        assert values == sorted(values), name
        assert counts[-1] == (float("inf"), found.samples[f"{name}_count", labels])
        assert (f"{name}_sum", labels) in found.samples
