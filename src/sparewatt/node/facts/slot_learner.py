"""Learns how many answers a server writes at once from its own counts of running and waiting requests.

Requests that wait while as many run as before, poll after poll, say that the server runs no more. A full KV cache says
the same of memory, and a server that writes nothing says it of nothing: neither teaches.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from sparewatt.node.backends.backend import BackendLoad

POLLS_MIN = 3
"""In a row: a batch that is still growing looks like a full one for a moment, and one count may be a slip."""
KV_FULL = 0.9
"""From this use of the KV cache on, requests may wait for memory."""
SLOTS_MAX = 4096
"""Of a node's report."""


@dataclass(slots=True)
class SlotLearner:
    learned: int | None = None
    _above: deque[int] = field(default_factory=lambda: deque(maxlen=POLLS_MIN))
    """Counts of running requests in the last polls, while each was above what was assumed."""
    _full: deque[int] = field(default_factory=lambda: deque(maxlen=POLLS_MIN))
    """Counts of running requests in the last polls, while others waited at each."""
    _tokens: float | None = None

    def observe(self, load: BackendLoad | None, *, assumed: int) -> None:
        """One poll. `load` is None if the server does not report it; `assumed` are the slots that it has so far."""
        if load is None:
            self._above.clear()
            self._full.clear()
            return
        self._note(self._above, load.running, is_evidence=load.running > assumed)
        self._note(self._full, load.running, is_evidence=self._is_full(load))
        self._tokens = load.totals.generation_tokens
        if len(self._above) == POLLS_MIN:
            self.learned = min(SLOTS_MAX, *self._above)
        if len(self._full) == POLLS_MIN and len(set(self._full)) == 1:
            self.learned = min(SLOTS_MAX, load.running)

    def forget(self) -> None:
        """Another server, or the same after a restart, may have other limits."""
        self.learned, self._tokens = None, None
        self._above.clear()
        self._full.clear()

    def _is_full(self, load: BackendLoad) -> bool:
        writes = load.totals.generation_tokens is None or load.totals.generation_tokens != self._tokens
        has_memory = load.kv_used is None or load.kv_used < KV_FULL
        return load.queued > 0 and load.running > 0 and has_memory and writes

    @staticmethod
    def _note(counts: deque[int], running: int, *, is_evidence: bool) -> None:
        if is_evidence:
            counts.append(running)
        else:
            counts.clear()
