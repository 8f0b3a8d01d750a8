"""When is a model measured? Once before it serves, then a few times more while the node is idle.

What a node found at the start it may have found in a crowd: other nodes of the same machine measure at the same time.
Nobody else can raise such a figure later, since what gateways learn may only lower it. A server that loads models when
they are asked for (Ollama, LM Studio) has some measured from its disk, or it would never get a job. Pure: it measures
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sparewatt.node.backends.backend import BackendModel

TRY_AGAIN_S = 60.0
"""After this long a measurement that failed is tried again."""
CHECK_AFTER_S = (60.0, 600.0, 3600.0)
"""Waits before the first, second and third check of a figure; a check costs the owner a second of work."""


class MeasurementSchedule:
    def __init__(self) -> None:
        self._not_before_s: dict[str, float] = {}
        self._checks: dict[str, int] = {}
        """Checks that a figure has had, by model."""

    def is_due(self, key: str, *, is_measured: bool, is_idle: bool, now_s: float) -> bool:
        """The first look at a figure, new or from disk, only sets the time of its first check."""
        if is_measured and key not in self._checks:
            self._checks[key] = 0
            self._not_before_s[key] = now_s + CHECK_AFTER_S[0]
        return now_s >= self._not_before_s.get(key, 0.0) and (is_idle or not is_measured)

    def note_started(self, key: str, *, was_measured: bool, now_s: float) -> None:
        """An attempt begins: when is the next one, if this one brings nothing new?"""
        if not was_measured:
            self._not_before_s[key] = now_s + TRY_AGAIN_S
            return
        self._checks[key] += 1
        left = CHECK_AFTER_S[self._checks[key] :]
        self._not_before_s[key] = now_s + left[0] if left else math.inf


LOADED_MAX = 4
"""Models on disk that are loaded to be measured: each puts out of memory what was there, and takes a minute."""
VRAM_SHARE_MAX = 0.9
"""Of the memory: the rest is for contexts."""


def may_load(
    model: BackendModel,
    models: Sequence[BackendModel],
    *,
    vram_bytes: int,
    is_measured: Callable[[BackendModel], bool],
) -> bool:
    """Whether a model that lies on disk may be loaded to be measured: not while others are in use, and few at all."""
    if model.state != "on_disk" or model.weights_bytes > VRAM_SHARE_MAX * vram_bytes:
        return False
    if any(other.state == "warm" and not is_measured(other) for other in models):
        return False
    return sum(other.state == "on_disk" and is_measured(other) for other in models) < LOADED_MAX
