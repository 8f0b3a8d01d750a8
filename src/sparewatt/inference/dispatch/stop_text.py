"""A stop text that begins in one node's part of an answer and ends in the next one's: neither of them can see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Verdict = Literal["clear", "wait", "hit"]


class StraddlingStop:
    """Feed the text that follows. Once `clear`, it stays so: what begins later is the node's own business."""

    def __init__(self, before: str, stops: Sequence[str]) -> None:
        longest = max((len(stop) for stop in stops), default=0)
        self._joined = before[-(longest - 1) :] if longest > 1 else ""
        self._open = [(at, stop) for at in range(len(self._joined)) for stop in stops]
        self.verdict: Verdict = self._look()

    def feed(self, text: str) -> Verdict:
        if self.verdict == "wait":
            self._joined += text
            self.verdict = self._look()
        return self.verdict

    def _look(self) -> Verdict:
        if any(self._joined.startswith(stop, at) for at, stop in self._open):
            return "hit"
        self._open = [(at, stop) for at, stop in self._open if stop.startswith(self._joined[at:])]
        return "wait" if self._open else "clear"
