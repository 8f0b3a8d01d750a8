"""The live feed: twice a second, what changed since the last look, as one frame for everybody who watches.

It reads and is not told: a node that changes ten times between two looks costs one entry, and a gateway whose feed
nobody watches does next to nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from msgspec import UNSET, structs

from sparewatt.cluster.peers import Peers
from sparewatt.cluster.questions import SharedMatch
from sparewatt.core.clock import Clock
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import FEED_MATCHES_KEPT, FEED_MATCHES_PER_FRAME
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.inference.fleet.node_states import NodeStates
from sparewatt.inference.matcher.node_row import NodeRow, NodeState
from sparewatt.protocol.api.feed import FeedDelta, FeedMatch, FeedNode, FeedSnapshot, NetworkTotals
from sparewatt.telemetry.feed.frames import FeedFrame, FrameRing
from sparewatt.telemetry.feed.places import public_region
from sparewatt.telemetry.feed.public import (
    STATES,
    PublicNode,
    code_of,
    digits,
    feed_match,
    feed_node,
    two_digits,
    vram_gb_of,
)
from sparewatt.telemetry.job_counter import JobCounter

LOOK_S = 0.5
FORGET_OFFLINE_S = 24 * 3600.0
"""A node that has been gone for longer is not on the map any more."""
RATE_WINDOW_S = 10.0
STILL_S = 10.0
"""Where nothing happens, this often a frame shows that the feed is alive."""

States = list[tuple[NodeRow, NodeState]]
ShownMatch = MatchRecord | SharedMatch
"""A match of this process, or of another one."""


class LiveFeed:
    def __init__(
        self,
        *,
        states: NodeStates,
        dispatcher: Dispatcher,
        counter: JobCounter,
        clock: Clock,
        secret: bytes,
        run: str,
        peers: Peers,
    ) -> None:
        """`secret`: keys the handles by which strangers know nodes. `run`: names this process, until it restarts."""
        self._states = states
        self._dispatcher = dispatcher
        self._counter = counter
        self._clock = clock
        self._secret = secret
        self._peers = peers
        self._numbers: dict[NodeId, int] = {}
        self._codes: dict[NodeId, int] = {}
        """The state in which each node was last shown."""
        self._specs: dict[NodeId, object] = {}
        self._tokens: deque[tuple[float, int]] = deque()
        self._read = counter.changes.cursor
        """Up to where matches were shown."""
        self._elsewhere: dict[MatchId, SharedMatch] = {}
        """The last matches of other processes."""
        self._new_elsewhere: dict[MatchId, SharedMatch] = {}
        self._passed: dict[int, int] = {}
        """Up to where another process was told of matches here, by its number; only where somebody watches there."""
        self._shown: NetworkTotals | None = None
        self._shown_s = 0.0
        self._changed = asyncio.Event()
        self.frames = FrameRing(run)
        self.viewers = 0

    # other processes of this gateway

    def on_elsewhere(self, matches: Iterable[SharedMatch]) -> None:
        """Matches of another process."""
        for match in matches:
            match_id = MatchId(match.public.id)
            self._elsewhere[match_id] = match
            if len(self._elsewhere) > FEED_MATCHES_KEPT:
                del self._elsewhere[next(iter(self._elsewhere))]
            if self.viewers:
                self._new_elsewhere[match_id] = match

    def pass_on(self, number: int) -> list[SharedMatch]:
        """What another process shows its viewers of this one: the first time the last matches, then what is new."""
        cursor, changes = self._passed.get(number), self._counter.changes
        self._passed[number] = changes.cursor
        if cursor is None:
            records = list(self._dispatcher.last_records(FEED_MATCHES_KEPT))[::-1]
        else:
            latest = {record.id: record for record in changes.since(cursor)[0]}
            records = list(latest.values())[:FEED_MATCHES_PER_FRAME]
        return [
            SharedMatch(feed_match(record, []), [attempt.node_id for attempt in record.attempts]) for record in records
        ]

    def stop_passing(self, number: int) -> list[SharedMatch]:
        """Nobody watches there."""
        self._passed.pop(number, None)
        return []

    # frames

    async def look(self) -> None:
        """Called twice a second."""
        now_s = self._clock.now_s()
        self._tokens.append((now_s, self._dispatcher.tokens))
        while now_s - self._tokens[0][0] > RATE_WINDOW_S:
            self._tokens.popleft()
        if not self.viewers:
            return
        states = self._states.all()
        added, changed = self._difference(states)
        matches, left_out = self._new_matches()
        totals = self._totals_of(states)
        has_news = added or changed or matches or left_out
        if not has_news and totals == self._shown and now_s - self._shown_s < STILL_S:
            return
        self._shown, self._shown_s = totals, now_s
        self.frames.add(
            FeedDelta(
                at=self._clock.unix_s(),
                totals=totals,
                added=added or UNSET,
                nodes=changed or UNSET,
                matches=matches or UNSET,
                more_matches=left_out or UNSET,
            )
        )
        self._changed.set()
        self._changed = asyncio.Event()

    def _new_matches(self) -> tuple[list[FeedMatch], int]:
        """Those since the last frame, as many as a frame may hold, and how many more there were."""
        records, missed = self._counter.changes.since(self._read)
        self._read = self._counter.changes.cursor
        news: dict[MatchId, ShownMatch] = {record.id: record for record in records}
        news |= self._new_elsewhere
        self._new_elsewhere = {}
        shown = list(news.values())[:FEED_MATCHES_PER_FRAME]
        return [self._public(match) for match in shown], missed + len(news) - len(shown)

    async def wait(self) -> None:
        """For the next frame, or for the end."""
        await self._changed.wait()

    def close(self) -> None:
        """Nobody waits any longer: the gateway stops."""
        self._changed.set()

    # viewers

    def enter(self) -> None:
        """Somebody watches from now on. What changed before the first viewer came is in the snapshot."""
        if not self.viewers:
            self.frames.start_over()
            self._read = self._counter.changes.cursor
            self._new_elsewhere = {}
        self._prepare_snapshot(is_first=not self.viewers)
        self.viewers += 1

    def leave(self) -> None:
        self.viewers -= 1

    def snapshot(self) -> FeedFrame:
        """Made once for all who need it between two frames. What it shows beyond the last frame, the next repeats."""
        self._prepare_snapshot(is_first=False)
        return self.frames.whole

    # what is shown

    def _prepare_snapshot(self, *, is_first: bool) -> None:
        if self.frames.has_snapshot:
            return
        states = self._states.all()
        shown = [(row, state) for row, state in states if self._is_shown(row)]
        if is_first:
            self._codes = {row.id: code_of(state) for row, state in shown}
            self._specs = {row.id: row.specs for row, _ in shown}
        self.frames.snapshot(
            FeedSnapshot(
                at=self._clock.unix_s(),
                states=STATES,
                nodes=[self._feed_node(row, state) for row, state in shown],
                totals=self._totals_of(states),
                matches=[self._public(match) for match in self._last_matches()],
            )
        )

    def _last_matches(self) -> list[ShownMatch]:
        """Of all processes, the latest first."""
        own = list(self._dispatcher.last_records(FEED_MATCHES_KEPT))
        found: list[ShownMatch] = sorted([*self._elsewhere.values(), *own[::-1]], key=_began_unix_s)
        return found[-FEED_MATCHES_KEPT:][::-1]

    def totals(self) -> NetworkTotals:
        """Counts over all nodes, and what they do now."""
        return self._totals_of(self._states.all())

    def _totals_of(self, states: States) -> NetworkTotals:
        present = [row for row, state in states if state is not NodeState.OFFLINE]
        elsewhere = self._peers.totals()
        return NetworkTotals(
            nodes=Counter(state.value for _, state in states),
            gpus=sum(row.specs.gpu_count for row in present),
            vram_gb=sum(map(vram_gb_of, present)),
            jobs=self._dispatcher.running + elsewhere.jobs,
            tokens_per_s=int(digits(round(self.tokens_per_s + elsewhere.tokens_per_s), 2)),
            first_token_ms=two_digits(_mean_ms([self._counter.first_tokens(), *elsewhere.first_tokens])),
        )

    @property
    def tokens_per_s(self) -> float:
        if len(self._tokens) < 2:
            return 0.0
        (then_s, before), (now_s, after) = self._tokens[0], self._tokens[-1]
        return max(0, after - before) / (now_s - then_s) if now_s > then_s else 0.0

    def _difference(self, states: States) -> tuple[list[FeedNode], list[int]]:
        """Nodes that are new or different, in full; and of the others that changed, number and state in turns."""
        added: list[FeedNode] = []
        changed: list[int] = []
        for row, state in states:
            code = code_of(state)
            if self._specs.get(row.id) is not row.specs:
                if self._is_shown(row):
                    self._specs[row.id], self._codes[row.id] = row.specs, code
                    added.append(self._feed_node(row, state))
            elif self._codes[row.id] != code:
                self._codes[row.id] = code
                changed += (self._number(row.id), code)
        return added, changed

    def _is_shown(self, row: NodeRow) -> bool:
        if row.connected or self._peers.has_link(row.id):
            return True
        return self._clock.unix_s() - (row.last_seen_unix_s or 0.0) < FORGET_OFFLINE_S

    def _feed_node(self, row: NodeRow, state: NodeState) -> FeedNode:
        return feed_node(row, number=self._number(row.id), secret=self._secret, state=state)

    def _number(self, node_id: NodeId) -> int:
        return self._numbers.setdefault(node_id, len(self._numbers))

    def _public(self, match: ShownMatch) -> FeedMatch:
        if isinstance(match, MatchRecord):
            return feed_match(match, [self._public_node(attempt.node_id) for attempt in match.attempts])
        nodes = [self._public_node(NodeId(node)) for node in match.nodes]
        region = nodes[-1].region if nodes else None
        return structs.replace(match.public, nodes=[node.number for node in nodes], region=region)

    def _public_node(self, node_id: NodeId) -> PublicNode:
        row = self._states.get(node_id)
        return PublicNode(self._number(node_id), public_region(row.specs.region) if row else None)


def _began_unix_s(match: ShownMatch) -> float:
    return match.created_unix_s if isinstance(match, MatchRecord) else match.public.at


def _mean_ms(medians: Sequence[tuple[float | None, int]]) -> float | None:
    """Of several processes' medians their mean, each by how many it stands for."""
    known = [(ms, count) for ms, count in medians if ms is not None and count]
    return sum(ms * count for ms, count in known) / sum(count for _, count in known) if known else None
