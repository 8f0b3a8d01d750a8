"""The live feed: twice a second, what changed since the last frame, as one frame for all viewers.

The feed polls counts and the table of nodes: a node that changes ten times between two frames costs one entry, and a
feed without viewers next to nothing. Frames are encoded once and stored in a short ring; a viewer is only the number of
its last frame. One that fell behind the ring gets a snapshot again, so a slow viewer costs no queue and no memory.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import UNSET, structs

from sparewatt.cluster.peers import Peers
from sparewatt.cluster.questions import SharedMatch
from sparewatt.core.clock import Clock
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.inference.fleet.node_states import NodeStates
from sparewatt.inference.matcher.node_row import NodeRow, NodeState
from sparewatt.protocol.api.feed import FeedAuction, FeedDelta, FeedMatch, FeedNode, FeedSnapshot, NetworkTotals
from sparewatt.telemetry.feed.auctions import AuctionFeed
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

FEED_FRAMES_KEPT = 60
"""Half a minute of frames: a browser that lost its connection continues where it was."""
FEED_MATCHES_KEPT = 50
"""Matches that a new viewer sees."""
FEED_MATCHES_PER_FRAME = 40
"""Matches in one frame; beyond that a person sees only that there are more."""
FRAME_S = 0.5
FORGET_OFFLINE_S = 24 * 3600.0
"""A node that has been offline for longer is no longer on the map."""
RATE_WINDOW_S = 10.0
QUIET_FRAME_S = 10.0
"""If nothing changes, a frame this often shows that the feed is alive."""
_encode = msgspec.json.Encoder().encode

States = list[tuple[NodeRow, NodeState]]
ShownMatch = MatchRecord | SharedMatch
"""A match of this process, or of another one."""


class FeedFrame(NamedTuple):
    number: int
    data: bytes
    """A server-sent event."""


@dataclass(slots=True)
class FrameRing:
    run: str
    """Names this process until it restarts, so that frame numbers of two processes are not mixed up."""
    number: int = 0
    snapshot: FeedFrame | None = None
    """The state after the last frame; None if it was not made yet."""
    _ring: deque[FeedFrame] = field(default_factory=lambda: deque(maxlen=FEED_FRAMES_KEPT))

    def add(self, body: FeedDelta) -> None:
        """A change. The snapshot before it is out of date."""
        self.number += 1
        self._ring.append(self._frame("delta", body))
        self.snapshot = None

    def start_over(self) -> None:
        """Drop all frames, since something may have changed without one: every viewer needs a snapshot."""
        self.number += 1
        self._ring.clear()
        self.snapshot = None

    def add_snapshot(self, body: FeedSnapshot) -> FeedFrame:
        self.snapshot = self._frame("snapshot", body)
        return self.snapshot

    def after(self, number: int) -> list[FeedFrame] | None:
        """The frames after this one; None if the ring no longer has all of them."""
        if number > self.number or number < self.number - len(self._ring):
            return None
        return [frame for frame in self._ring if frame.number > number]

    def number_of(self, last_id: str) -> int | None:
        """The number in a `Last-Event-ID` of a viewer; None if it is not of this run."""
        run, _, number = last_id.rpartition("-")
        return int(number) if run == self.run and number.isascii() and number.isdigit() and len(number) < 18 else None

    def _frame(self, event: str, body: FeedSnapshot | FeedDelta) -> FeedFrame:
        """JSON has no bare line break, so one `data` line is enough."""
        head = f"event: {event}\nid: {self.run}-{self.number}\ndata: "
        return FeedFrame(self.number, head.encode() + _encode(body) + b"\n\n")


@dataclass(kw_only=True, eq=False, repr=False)
class LiveFeed:
    states: NodeStates
    dispatcher: Dispatcher
    counter: JobCounter
    clock: Clock
    secret: bytes
    """Keys the public handles of nodes."""
    run: InitVar[str]
    """Names this process until it restarts."""
    peers: Peers
    auctions: AuctionFeed

    def __post_init__(self, run: str) -> None:
        self._numbers: dict[NodeId, int] = {}
        self._next_numbers = itertools.count()
        self._codes: dict[NodeId, int] = {}
        """The state in which each node was last shown."""
        self._specs: dict[NodeId, object] = {}
        self._tokens: deque[tuple[float, int]] = deque()
        self._cursor = self.counter.changes.cursor
        """Up to where matches were shown."""
        self._peer_matches: dict[MatchId, SharedMatch] = {}
        """The last matches of other processes."""
        self._new_peer_matches: dict[MatchId, SharedMatch] = {}
        self._peer_cursors: dict[int, int] = {}
        """Up to where matches were shared with another process, by its number; only while it has viewers."""
        self._shown_totals: NetworkTotals | None = None
        self._shown_auctions: list[FeedAuction] = []
        self._shown_s = 0.0
        self._changed = asyncio.Event()
        self.frames = FrameRing(run)
        self.viewers = 0

    # other processes of this gateway

    def on_peer_matches(self, matches: Iterable[SharedMatch]) -> None:
        for match in matches:
            match_id = MatchId(match.public.id)
            self._peer_matches[match_id] = match
            if len(self._peer_matches) > FEED_MATCHES_KEPT:
                del self._peer_matches[next(iter(self._peer_matches))]
            if self.viewers:
                self._new_peer_matches[match_id] = match

    def share(self, number: int) -> list[SharedMatch]:
        """Matches for the viewers of another process: the last ones first, then what is new."""
        cursor, changes = self._peer_cursors.get(number), self.counter.changes
        self._peer_cursors[number] = changes.cursor
        if cursor is None:
            records = list(self.dispatcher.last_records(FEED_MATCHES_KEPT))[::-1]
        else:
            records = list(self._records(changes.since(cursor)[0]).values())[:FEED_MATCHES_PER_FRAME]
        return [
            SharedMatch(feed_match(record, []), [attempt.node_id for attempt in record.attempts]) for record in records
        ]

    def stop_sharing(self, number: int) -> None:
        """That process has no viewers."""
        self._peer_cursors.pop(number, None)

    # frames

    async def make_frame(self) -> None:
        """Called twice a second."""
        now_s = self.clock.now_s()
        self._tokens.append((now_s, self.dispatcher.tokens))
        while now_s - self._tokens[0][0] > RATE_WINDOW_S:
            self._tokens.popleft()
        if not self.viewers:
            return
        states = self.states.all()
        added, changed = self._difference(states)
        matches, more_matches = self._new_matches()
        totals, auctions = self._totals_of(states), self.auctions.newest()
        new_auctions = UNSET if auctions is self._shown_auctions else auctions
        has_changed = added or changed or matches or more_matches or new_auctions is not UNSET
        if not has_changed and totals == self._shown_totals and now_s - self._shown_s < QUIET_FRAME_S:
            return
        self._shown_totals, self._shown_auctions, self._shown_s = totals, auctions, now_s
        self.frames.add(
            FeedDelta(
                at=self.clock.unix_s(),
                totals=totals,
                added=added or UNSET,
                nodes=changed or UNSET,
                matches=matches or UNSET,
                more_matches=more_matches or UNSET,
                auctions=new_auctions,
            )
        )
        self._changed.set()
        self._changed = asyncio.Event()

    def _new_matches(self) -> tuple[list[FeedMatch], int]:
        """Matches since the last frame, as many as fit into one, and how many more there were."""
        changed, missed = self.counter.changes.since(self._cursor)
        self._cursor = self.counter.changes.cursor
        latest: dict[MatchId, ShownMatch] = {**self._records(changed), **self._new_peer_matches}
        self._new_peer_matches = {}
        shown = list(latest.values())[:FEED_MATCHES_PER_FRAME]
        return [self._public(match) for match in shown], missed + len(latest) - len(shown)

    def _records(self, match_ids: Iterable[MatchId]) -> dict[MatchId, MatchRecord]:
        """Each once, as it is now; without those that the dispatcher no longer has."""
        found = {match_id: self.dispatcher.record(match_id) for match_id in match_ids}
        return {match_id: record for match_id, record in found.items() if record is not None}

    async def wait(self) -> None:
        """For the next frame, or until the feed is closed."""
        await self._changed.wait()

    def close(self) -> None:
        """The gateway stops: end every wait."""
        self._changed.set()

    # viewers

    def enter(self) -> None:
        """A viewer more. What changed before the first one is in the snapshot."""
        if not self.viewers:
            self.frames.start_over()
            self._cursor = self.counter.changes.cursor
            self._new_peer_matches = {}
            self._show_all()
        self.viewers += 1

    def leave(self) -> None:
        self.viewers -= 1
        if not self.viewers:
            self._codes, self._specs = {}, {}

    def forget(self, node_id: NodeId) -> None:
        """A node that is no longer known. If it comes again, it is a new one."""
        for by_node in (self._numbers, self._codes, self._specs):
            by_node.pop(node_id, None)

    def snapshot(self) -> FeedFrame:
        """Made once between two frames. What it shows beyond the last frame, the next one repeats."""
        return self.frames.snapshot or self._make_snapshot(self.states.all())

    # content

    def _show_all(self) -> None:
        """Make the first snapshot, and remember what it shows: the next frame has the difference."""
        states = self.states.all()
        shown = [(row, state) for row, state in states if self._is_shown(row)]
        self._codes = {row.id: code_of(state) for row, state in shown}
        self._specs = {row.id: row.specs for row, _ in shown}
        self._shown_auctions = self.auctions.newest()
        self._make_snapshot(states)

    def _make_snapshot(self, states: States) -> FeedFrame:
        return self.frames.add_snapshot(
            FeedSnapshot(
                at=self.clock.unix_s(),
                states=STATES,
                nodes=[self._feed_node(row, state) for row, state in states if self._is_shown(row)],
                totals=self._totals_of(states),
                matches=[self._public(match) for match in self._last_matches()],
                auctions=self.auctions.newest(),
            )
        )

    def _last_matches(self) -> list[ShownMatch]:
        """Of all processes, the latest first."""
        own = list(self.dispatcher.last_records(FEED_MATCHES_KEPT))
        matches: list[ShownMatch] = sorted([*self._peer_matches.values(), *own[::-1]], key=_began_unix_s)
        return matches[-FEED_MATCHES_KEPT:][::-1]

    def totals(self) -> NetworkTotals:
        """Counts over all nodes and all processes, at this moment."""
        return self._totals_of(self.states.all())

    def _totals_of(self, states: States) -> NetworkTotals:
        present = [row for row, state in states if state is not NodeState.OFFLINE]
        peers = self.peers.totals()
        return NetworkTotals(
            nodes=Counter(state.value for _, state in states),
            gpus=sum(row.specs.gpu_count for row in present),
            vram_gb=sum(map(vram_gb_of, present)),
            jobs=self.dispatcher.running + peers.jobs,
            tokens_per_s=int(digits(round(self.tokens_per_s + peers.tokens_per_s), 2)),
            first_token_ms=two_digits(_mean_ms([self.counter.first_tokens(), *peers.first_tokens])),
        )

    @property
    def tokens_per_s(self) -> float:
        if len(self._tokens) < 2:
            return 0.0
        (then_s, before), (now_s, after) = self._tokens[0], self._tokens[-1]
        return max(0, after - before) / (now_s - then_s) if now_s > then_s else 0.0

    def _difference(self, states: States) -> tuple[list[FeedNode], list[int]]:
        """New or different nodes in full; of nodes that only changed their state, number and state in alternation."""
        added: list[FeedNode] = []
        changed: list[int] = []
        for row, state in states:
            code = code_of(state)
            if self._specs.get(row.id) is not row.specs:
                if self._is_shown(row):
                    self._specs[row.id], self._codes[row.id] = row.specs, code
                    added.append(self._feed_node(row, state))
                else:
                    self._specs.pop(row.id, None)
            elif self._codes[row.id] != code:
                self._codes[row.id] = code
                changed += (self._number(row.id), code)
        return added, changed

    def _is_shown(self, row: NodeRow) -> bool:
        if row.connected or self.peers.has_link(row.id):
            return True
        return self.clock.unix_s() - (row.last_seen_unix_s or 0.0) < FORGET_OFFLINE_S

    def _feed_node(self, row: NodeRow, state: NodeState) -> FeedNode:
        return feed_node(row, number=self._number(row.id), secret=self.secret, state=state)

    def _number(self, node_id: NodeId) -> int:
        number = self._numbers.get(node_id)
        if number is None:
            number = self._numbers[node_id] = next(self._next_numbers)
        return number

    def _public(self, match: ShownMatch) -> FeedMatch:
        if isinstance(match, MatchRecord):
            return feed_match(match, [self._public_node(attempt.node_id) for attempt in match.attempts])
        nodes = [self._public_node(NodeId(node)) for node in match.nodes]
        region = nodes[-1].region if nodes else None
        return structs.replace(match.public, nodes=[node.number for node in nodes], region=region)

    def _public_node(self, node_id: NodeId) -> PublicNode:
        row = self.states.get(node_id)
        return PublicNode(self._number(node_id), public_region(row.specs.region) if row else None)


def _began_unix_s(match: ShownMatch) -> float:
    return match.created_unix_s if isinstance(match, MatchRecord) else match.public.at


def _mean_ms(medians: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of several processes' medians, weighted by their counts."""
    known = [(ms, count) for ms, count in medians if ms is not None and count]
    return sum(ms * count for ms, count in known) / sum(count for _, count in known) if known else None
