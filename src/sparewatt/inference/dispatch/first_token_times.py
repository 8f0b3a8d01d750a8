"""How long first tokens of each model take, by this gateway's clock, whichever node wrote them.

A node that was timed a few times only has predictions that are its own word. Its deadline is held against what others
needed for prompts of like length. Bounded: the models used last, and per model and class of length the last times.
"""

from __future__ import annotations

from collections import deque

TIMES_KEPT = 128
"""Per model and class of prompts: one in a hundred of them is the slowest but one."""
TIMES_MIN = 20
"""Fewer say too little about the slowest of a hundred."""
MODELS_MAX = 512
_CLASS_BITS = 2
"""A class of prompts spans a factor of four in length."""


def length_class(prompt_tokens: int) -> int:
    return max(0, prompt_tokens).bit_length() // _CLASS_BITS


class FirstTokenTimes:
    def __init__(self) -> None:
        self._times_s: dict[str, dict[int, deque[float]]] = {}
        """By model, the one used last at the end, and class of prompts."""

    def add(self, model: str, prompt_tokens: int, took_s: float) -> None:
        classes = self._times_s.pop(model, None) or {}
        self._times_s[model] = classes
        if len(self._times_s) > MODELS_MAX:
            del self._times_s[next(iter(self._times_s))]
        times_s = classes.setdefault(length_class(prompt_tokens), deque(maxlen=TIMES_KEPT))
        times_s.append(took_s)

    def p99_s(self, model: str, prompt_tokens: int) -> float | None:
        """None if too few were timed."""
        times_s = self._times_s.get(model, {}).get(length_class(prompt_tokens))
        if times_s is None or len(times_s) < TIMES_MIN:
            return None
        return sorted(times_s)[len(times_s) * 99 // 100]
