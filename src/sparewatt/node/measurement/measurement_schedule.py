"""When a model is measured: quickly before it serves, completely as soon as the node is idle, then now and then.

A first measurement may have been disturbed by what nobody can see here, such as other nodes on the same machine; and a
machine changes. When jobs take clearly longer or shorter than the curve says, it is measured again. A server that loads
models on demand (Ollama, LM Studio) has some measured from disk, or they would never get a job. Pure: it measures
nothing itself.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Sequence

from sparewatt.node.backends.backend import BackendModel

RETRY_S = 60.0
"""After this long a first measurement that failed is repeated."""
REST_RETRY_S = 15.0
"""After this long the rest of a measurement that was interrupted, by a job for instance, goes on."""
CHECK_AFTER_S = (60.0, 600.0, 3600.0, 86400.0)
"""Waits before the first, second and third check of a figure, and before every further one; a check costs the owner a
few seconds of work."""
DISAGREE_FACTOR = 1.5
DISAGREE_S = 600.0
"""Not more often than that is a model measured again because jobs disagree."""
OBSERVATIONS_MAX = 20
OBSERVATIONS_MIN = 10
LOADED_MAX = 4
"""Models on disk that are loaded to be measured: each evicts what was in memory, and takes a minute."""
VRAM_SHARE_MAX = 0.9
"""Of the memory, for the weights: the rest is for the KV cache."""


class MeasurementSchedule:
    def __init__(self) -> None:
        self._not_before_s: dict[str, float] = {}
        self._started_s: dict[str, float] = {}
        self._checks: dict[str, int] = {}
        """How often each complete figure was checked."""

    def is_due(self, key: str, *, is_measured: bool, is_complete: bool, is_idle: bool, now_s: float) -> bool:
        """The first call for a complete figure, new or from disk, only schedules its first check."""
        if is_complete and key not in self._checks:
            self._checks[key] = 0
            self._not_before_s[key] = now_s + CHECK_AFTER_S[0]
        return now_s >= self._not_before_s.get(key, 0.0) and (is_idle or not is_measured)

    def note_started(self, key: str, *, was_measured: bool, was_complete: bool, now_s: float) -> None:
        """Schedule the next measurement, in case this one fails or changes nothing."""
        self._started_s[key] = now_s
        if not was_complete:
            self._not_before_s[key] = now_s + (REST_RETRY_S if was_measured else RETRY_S)
            return
        self._checks[key] = min(self._checks.get(key, 0) + 1, len(CHECK_AFTER_S) - 1)
        self._not_before_s[key] = now_s + CHECK_AFTER_S[self._checks[key]]

    def note_first(self, key: str) -> None:
        """It can serve: the rest follows at once."""
        self._not_before_s.pop(key, None)

    def note_interlude(self, now_s: float) -> None:
        """The machine did something else for a while: every figure is due for a check."""
        self._not_before_s = dict.fromkeys(self._not_before_s, now_s)

    def note_disagreement(self, key: str, *, now_s: float) -> None:
        at_s = max(now_s, self._started_s.get(key, -DISAGREE_S) + DISAGREE_S)
        self._not_before_s[key] = min(at_s, self._not_before_s.get(key, at_s))


class SpeedObservations:
    """How jobs compare with the curve: ratios of what was seen to what was expected, reading and writing apart."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], deque[float]] = {}

    def note(self, key: str, what: str, *, seen_s: float, expected_s: float) -> None:
        if seen_s > 0 and expected_s > 0:
            self._ratios.setdefault((key, what), deque(maxlen=OBSERVATIONS_MAX)).append(seen_s / expected_s)

    def disagree(self, key: str) -> bool:
        """Whether the median of the last jobs is far from the curve, either way."""
        return any(
            len(ratios) >= OBSERVATIONS_MIN and not 1 / DISAGREE_FACTOR <= statistics.median(ratios) <= DISAGREE_FACTOR
            for (of, _), ratios in self._ratios.items()
            if of == key
        )

    def forget(self, key: str) -> None:
        """The curve is another: what was seen is to be compared with that."""
        self._ratios = {names: ratios for names, ratios in self._ratios.items() if names[0] != key}


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
