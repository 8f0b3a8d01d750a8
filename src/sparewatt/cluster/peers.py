"""The state of the other processes, as they report it twice a second, and what follows from it.

A process that has been silent for a few seconds counts as down. No request waits for anything in here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt.cluster.peer_rpc import PeerClient
from sparewatt.cluster.questions import NEWS, NewsReply, NewsRequest, SharedMatch
from sparewatt.core.clock import Clock
from sparewatt.core.ids import KeyId, NodeId

EXCHANGE_S = 0.5
SILENT_S = 3.0
HUNG_S = 1.5
"""A process that takes questions and answers none for this long hangs. One whose port is closed has ended."""


class PeerTotals(NamedTuple):
    """Sums over the other processes."""

    jobs: int = 0
    tokens_per_s: float = 0.0
    first_tokens: tuple[tuple[float, int], ...] = ()
    """Medians in milliseconds, each with the number of its jobs."""


@dataclass(slots=True)
class PeerState:
    news: NewsReply
    at_s: float
    nodes: frozenset[NodeId]


@dataclass(slots=True)
class PeerNews:
    """The result of one round of questions."""

    restarted: list[int] = field(default_factory=list)
    """Processes that restarted since the last round: what they had begun is over."""
    matches: list[SharedMatch] = field(default_factory=list)
    """For the live feed."""


@dataclass(slots=True, eq=False, repr=False)
class Peers:
    client: PeerClient
    clock: Clock
    run: str
    """Names this process until it restarts."""
    may_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the parent lets this process accept clients."""
    is_open: bool = False
    """Whether it does."""
    _states: dict[int, PeerState] = field(default_factory=dict)
    _unanswered_since_s: dict[int, float] = field(default_factory=dict)
    """When a process was first asked of those that took the question and have not answered since."""

    async def exchange(self, *, watching: bool) -> PeerNews:
        """Ask all of them for news. `watching`: the live feed has viewers here."""
        news = PeerNews()
        await asyncio.gather(*(self._ask(number, news, watching=watching) for number in self.client.slot.others))
        return news

    async def _ask(self, number: int, round_: PeerNews, *, watching: bool) -> None:
        before = self._states.get(number)
        known = before.news.version if before is not None else ""
        asked_s = self.clock.now_s()
        news = await self.client.ask(number, NEWS, NewsRequest(self.client.slot.number, known, watching))
        if news is None and self.clock.now_s() - asked_s >= NEWS.within_s:
            self._unanswered_since_s.setdefault(number, asked_s)
            return
        self._unanswered_since_s.pop(number, None)
        if news is None:
            return
        if before is not None and before.news.run != news.run:
            round_.restarted.append(number)
        nodes = before.nodes if before is not None else frozenset()
        nodes = frozenset(map(NodeId, news.nodes)) if news.nodes is not None else nodes
        self._states[number] = PeerState(news, self.clock.now_s(), nodes)
        round_.matches += news.matches

    def _present(self) -> dict[int, PeerState]:
        """By the number of the process."""
        if not self._states:
            return self._states
        now_s = self.clock.now_s()
        return {number: state for number, state in self._states.items() if now_s - state.at_s < SILENT_S}

    def hung(self) -> tuple[int, ...]:
        """The numbers of processes that take connections and do not answer."""
        now_s = self.clock.now_s()
        return tuple(sorted(number for number, at_s in self._unanswered_since_s.items() if now_s - at_s >= HUNG_S))

    def has_link(self, node_id: NodeId) -> bool:
        """Whether another process has a link to a node."""
        return bool(self._states) and any(node_id in state.nodes for state in self._present().values())

    def is_first_with_link(self, node_id: NodeId) -> bool:
        """Whether no process before this one has a link to a node: of those with one, the first speaks for all."""
        number = self.client.slot.number
        return not any(other < number and node_id in state.nodes for other, state in self._present().items())

    def nodes(self) -> frozenset[NodeId]:
        """All nodes with a link to another process."""
        return frozenset().union(*(state.nodes for state in self._present().values()))

    def totals(self) -> PeerTotals:
        news = [state.news for state in self._present().values()]
        return PeerTotals(
            jobs=sum(each.jobs for each in news),
            tokens_per_s=sum(each.tokens_per_s for each in news),
            first_tokens=tuple(
                (each.first_token_ms, each.first_tokens) for each in news if each.first_token_ms is not None
            ),
        )

    def pending(self, key: KeyId) -> int:
        """What requests at other processes hold of a key's budget, or have spent and not posted yet."""
        return sum(state.news.held.get(key, 0) for state in self._present().values())

    def counts_uptime(self) -> bool:
        """Whether this process counts the uptime of nodes: the first of those that are up does."""
        number = self.client.slot.number
        return number < min(self._present(), default=number + 1)
