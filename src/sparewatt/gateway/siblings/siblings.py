"""The other processes as this one knows them: what they told twice a second, and what follows from it.

A process that has been silent for a few seconds counts as gone. Nothing here is needed to answer a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.ids import KeyId, NodeId
from sparewatt.gateway.siblings.asking import Asker
from sparewatt.gateway.siblings.place import Place
from sparewatt.gateway.siblings.questions import NEWS, News, NewsAsked, Passed

EXCHANGE_S = 0.5
SILENT_S = 3.0


class Elsewhere(NamedTuple):
    """What the other processes do, in all."""

    jobs: int = 0
    tokens_per_s: float = 0.0
    first_tokens: tuple[tuple[float, int], ...] = ()
    """Medians in milliseconds, each with how many it stands for."""


@dataclass(slots=True)
class Heard:
    news: News
    at_s: float
    nodes: frozenset[NodeId]


class Siblings:
    def __init__(self, place: Place, *, clock: Clock, run: str) -> None:
        self.place = place
        self.run = run
        self.asker = Asker(place)
        self._clock = clock
        self._heard: dict[int, Heard] = {}
        self.may_open = asyncio.Event()
        """Set when the parent lets this process take clients."""
        self.is_open = False
        """Whether it does."""
        self.on_restarted: Callable[[int], None] = lambda _number: None
        """Told who is another process than before: what the one before had begun is over."""
        self.on_matches: Callable[[Iterable[Passed]], None] = lambda _matches: None

    async def exchange(self, *, watching: bool) -> None:
        """Ask all of them how they are."""
        await asyncio.gather(*(self._hear(number, watching=watching) for number in self.place.others))

    async def _hear(self, number: int, *, watching: bool) -> None:
        before = self._heard.get(number)
        known = before.news.version if before is not None else ""
        news = await self.asker.ask(number, NEWS, NewsAsked(self.place.number, known, watching))
        if news is None:
            return
        if before is not None and before.news.run != news.run:
            self.on_restarted(number)
        nodes = (
            frozenset(map(NodeId, news.nodes)) if news.nodes is not None else before.nodes if before else frozenset()
        )
        self._heard[number] = Heard(news, self._clock.now_s(), nodes)
        self.on_matches(news.matches)

    def _present(self) -> list[Heard]:
        if not self._heard:
            return []
        now_s = self._clock.now_s()
        return [heard for heard in self._heard.values() if now_s - heard.at_s < SILENT_S]

    # what follows

    def has_link(self, node_id: NodeId) -> bool:
        """Whether another process has a link to a node."""
        return bool(self._heard) and any(node_id in heard.nodes for heard in self._present())

    def nodes(self) -> frozenset[NodeId]:
        """All that have a link to another process."""
        return frozenset().union(*(heard.nodes for heard in self._present()))

    def elsewhere(self) -> Elsewhere:
        told = [heard.news for heard in self._present()]
        return Elsewhere(
            jobs=sum(news.jobs for news in told),
            tokens_per_s=sum(news.tokens_per_s for news in told),
            first_tokens=tuple(
                (news.first_token_ms, news.first_tokens) for news in told if news.first_token_ms is not None
            ),
        )

    def held(self, key: KeyId) -> int:
        """What requests at other processes hold of a key's budget, or have spent of it a moment ago."""
        return sum(heard.news.held.get(key, 0) for heard in self._present())

    @property
    def keeps_time(self) -> bool:
        """Whether it is this process that counts how long nodes are up: the first of those that are there."""
        if not self.place.others:
            return True
        now_s = self._clock.now_s()
        there = [number for number, heard in self._heard.items() if now_s - heard.at_s < SILENT_S]
        return self.place.number < min(there, default=self.place.number + 1)
