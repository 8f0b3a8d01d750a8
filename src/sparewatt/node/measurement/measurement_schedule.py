"""When a model is measured: once before it serves, then a few times more while the node is idle.

The first measurement may have been disturbed, for example by other nodes on the same machine. Only a later one here can
raise its figures, since what gateways learn from jobs may only lower them. A server that loads models on demand
(Ollama, LM Studio) has some measured from disk, or they would never get a job. Pure: it measures nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sparewatt.node.backends.backend import BackendModel

RETRY_S = 60.0
"""After this long a measurement that failed is repeated."""
CHECK_AFTER_S = (60.0, 600.0, 3600.0)
"""Waits before the first, second and third check of a figure; a check costs the owner a second of work."""
LOADED_MAX = 4
"""Models on disk that are loaded to be measured: each evicts what was in memory, and takes a minute."""
VRAM_SHARE_MAX = 0.9
"""Of the memory, for the weights: the rest is for the KV cache."""


class MeasurementSchedule:
    def __init__(self) -> None:
        self._not_before_s: dict[str, float] = {}
        self._checks: dict[str, int] = {}
        """How often each model was checked."""

    def is_due(self, key: str, *, is_measured: bool, is_idle: bool, now_s: float) -> bool:
        """The first call for a figure, new or from disk, only schedules its first check."""
        if is_measured and key not in self._checks:
            self._checks[key] = 0
            self._not_before_s[key] = now_s + CHECK_AFTER_S[0]
        return now_s >= self._not_before_s.get(key, 0.0) and (is_idle or not is_measured)

    def note_started(self, key: str, *, was_measured: bool, now_s: float) -> None:
        """Schedule the next measurement, in case this one fails or changes nothing."""
        if not was_measured:
            self._not_before_s[key] = now_s + RETRY_S
            return
        self._checks[key] += 1
        left = CHECK_AFTER_S[self._checks[key] :]
        self._not_before_s[key] = now_s + left[0] if left else math.inf


def may_load(
    model: BackendModel,
    models: Sequence[BackendModel],
    *,
    vram_bytes: int,
    is_measured: Callable[[BackendModel], bool],
) -> bool:
    """Whether a model on disk may be loaded to be measured: only a few, and none while a loaded one is unmeasured."""
    if model.state != "on_disk" or model.weights_bytes > VRAM_SHARE_MAX * vram_bytes:
        return False
    if any(other.state == "warm" and not is_measured(other) for other in models):
        return False
    return sum(other.state == "on_disk" and is_measured(other) for other in models) < LOADED_MAX
