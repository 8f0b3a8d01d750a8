"""Pings to all links, by one timer: ten thousand nodes need no ten thousand of them."""

from __future__ import annotations

from collections import deque

from sparewatt.core.clock import Clock
from sparewatt.link.gateway_end import NodeLink

_APART_S = 0.02
"""Links that come due this close together are pinged together."""


class Pinger:
    """Pings each link when it comes, then every `every_s`, until it is lost. Who came first is always due first."""

    def __init__(self, *, every_s: float, clock: Clock) -> None:
        self._every_s = every_s
        self._clock = clock
        self._due: deque[tuple[float, NodeLink]] = deque()
        self._is_set = False

    def add(self, link: NodeLink) -> None:
        self._ping(link)
        if not self._is_set:
            self._set()

    def _ping(self, link: NodeLink) -> None:
        link.ping()
        self._due.append((self._clock.now_s() + self._every_s, link))

    def _set(self) -> None:
        """For the first that is due. Without links there is no timer."""
        self._is_set = bool(self._due)
        if self._due:
            self._clock.call_later(max(_APART_S, self._due[0][0] - self._clock.now_s()), self._ring)

    def _ring(self) -> None:
        now_s = self._clock.now_s()
        while self._due and self._due[0][0] <= now_s:
            _, link = self._due.popleft()
            if not link.is_lost:
                self._ping(link)
        self._set()
