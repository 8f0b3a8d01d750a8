"""The live feed: twice a second, what changed since the last look, put into one frame for everybody who watches.

Looked at and not told: a node that changes ten times between two looks costs one entry, and a gateway whose feed
nobody watches does next to nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sparewatt.core.clock import Clock
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import FEED_MATCHES_KEPT, FEED_MATCHES_PER_FRAME
from sparewatt.gateway.feeds.frames import Frame, Frames
from sparewatt.gateway.feeds.places import public_region
from sparewatt.gateway.feeds.public import (
    STATES,
    Seen,
    code_of,
    describe_public,
    digits,
    node_cells,
    two_digits,
    vram_gb_of,
)
from sparewatt.gateway.siblings.questions import Passed
from sparewatt.gateway.siblings.siblings import Siblings
from sparewatt.inference.dispatch.dispatcher import Dispatcher, unwatched
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.inference.matcher.health import state_of
from sparewatt.inference.matcher.model import HealthRules, NodeRow, NodeState
from sparewatt.inference.matcher.table import NodeTable

LOOK_S = 0.5
FORGET_OFFLINE_S = 24 * 3600.0
"""A node that has been gone for longer is not on the map any more."""
RATE_WINDOW_S = 10.0
STILL_S = 10.0
"""Where nothing happens, this often a frame shows that the feed is alive."""

States = list[tuple[NodeRow, NodeState]]
Shown = MatchRecord | Passed
"""A match of this process, or of another one."""


class LiveFeed:
    def __init__(
        self,
        *,
        table: NodeTable,
        dispatcher: Dispatcher,
        health: HealthRules,
        clock: Clock,
        secret: bytes,
        run: str,
        first_tokens: Callable[[], tuple[float | None, int]],
        siblings: Siblings,
    ) -> None:
        self._table = table
        self._dispatcher = dispatcher
        self._health = health
        self._clock = clock
        self._secret = secret
        self._first_tokens = first_tokens
        self._siblings = siblings
        self._numbers: dict[NodeId, int] = {}
        self._codes: dict[NodeId, int] = {}
        """The state in which each node was last shown."""
        self._specs: dict[NodeId, object] = {}
        self._totals: deque[tuple[float, int]] = deque()
        self._last: dict[MatchId, Shown] = {}
        self._moved: dict[MatchId, Shown] = {}
        self._passing: dict[int, dict[MatchId, MatchRecord]] = {}
        """What happened here since another process asked, by its number; only of those at which somebody watches."""
        self._passed_over = 0
        self._shown: dict[str, Any] = {}
        self._shown_s = 0.0
        self._changed = asyncio.Event()
        self.frames = Frames(run)
        self.viewers = 0

    # what happens

    def show(self, records: Iterable[MatchRecord]) -> None:
        """These jobs are over. While nobody watches, what a viewer who comes would see is in the dispatcher's ring."""
        if self._is_watched:
            for record in records:
                self.on_match(record)

    def on_match(self, record: MatchRecord) -> None:
        """A match was made or is over. On the request's path: a note, no more."""
        for waiting in self._passing.values():
            if len(waiting) < FEED_MATCHES_PER_FRAME:
                waiting[record.id] = record
        self._note(record.id, record)

    @property
    def _is_watched(self) -> bool:
        """Here, or at another process that shows what happens here."""
        return bool(self.viewers or self._passing)

    def _follow(self) -> None:
        """Hear of matches from now on, unless that is so already. The last ones are those that began last."""
        self._dispatcher.settle()
        if self._is_watched:
            return
        own = {record.id: record for record in self._dispatcher.last_records(FEED_MATCHES_KEPT)}
        others = {match_id: match for match_id, match in self._last.items() if isinstance(match, Passed)}
        found = sorted((others | own).items(), key=lambda item: _began_unix_s(item[1]))
        self._last = dict(found[-FEED_MATCHES_KEPT:])
        self._dispatcher.watch = self.on_match

    def _look_away(self) -> None:
        """If nobody watches any more."""
        if not self._is_watched:
            self._dispatcher.watch = unwatched

    def on_elsewhere(self, matches: Iterable[Passed]) -> None:
        """Matches of another process."""
        for match in matches:
            self._note(MatchId(match.public["id"]), match)

    def _note(self, match_id: MatchId, match: Shown) -> None:
        self._last[match_id] = match
        if len(self._last) > FEED_MATCHES_KEPT:
            del self._last[next(iter(self._last))]
        if not self.viewers:
            return
        if len(self._moved) < FEED_MATCHES_PER_FRAME or match_id in self._moved:
            self._moved[match_id] = match
        else:
            self._passed_over += 1

    def pass_on(self, number: int) -> list[Passed]:
        """What another process shows its viewers of this one: the first time the last matches, then what is new."""
        self._follow()
        news = self._passing.get(number)
        if news is None:
            news = {match_id: match for match_id, match in self._last.items() if isinstance(match, MatchRecord)}
        self._passing[number] = {}
        return [
            Passed(describe_public(record, []), [attempt.node_id for attempt in record.attempts])
            for record in news.values()
        ]

    def stop_passing(self, number: int) -> list[Passed]:
        """Nobody watches there."""
        self._passing.pop(number, None)
        self._look_away()
        return []

    async def look(self) -> None:
        """Called twice a second."""
        self._dispatcher.settle()  # so that nothing waits for longer than this, also where nobody looks
        now_s = self._clock.now_s()
        self._totals.append((now_s, self._dispatcher.tokens))
        while now_s - self._totals[0][0] > RATE_WINDOW_S:
            self._totals.popleft()
        if not self.viewers:
            self._moved.clear()
            return
        states = self._states(now_s)
        added, changed = self._difference(states)
        moved, self._moved = self._moved, {}
        passed_over, self._passed_over = self._passed_over, 0
        news: dict[str, Any] = {"added": added} if added else {}
        news |= {"nodes": changed} if changed else {}
        news |= {"matches": [self._public(record) for record in moved.values()]} if moved else {}
        news |= {"more_matches": passed_over} if passed_over else {}
        totals = self._totals_of(states)
        if not news and totals == self._shown and now_s - self._shown_s < STILL_S:
            return
        self._shown, self._shown_s = totals, now_s
        self.frames.add({"at": self._clock.unix_s(), "totals": totals, **news})
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """For the next frame, or for the end."""
        await self._changed.wait()

    def close(self) -> None:
        """Nobody waits any longer: the gateway stops."""
        self._changed.set()

    # who watches

    def enter(self) -> None:
        """Somebody watches from now on. Nobody noted what changed before the first of them came."""
        self._follow()
        if not self.viewers:
            self.frames.start_over()
        self._prepare_snapshot(is_first=not self.viewers)
        self.viewers += 1

    def leave(self) -> None:
        self.viewers -= 1
        self._look_away()

    def whole(self) -> Frame:
        """Made once for all who need it between two frames. What it shows beyond the last frame, the next repeats."""
        self._prepare_snapshot(is_first=False)
        return self.frames.whole

    # what is shown

    def _prepare_snapshot(self, *, is_first: bool) -> None:
        if self.frames.has_snapshot:
            return
        states = self._states(self._clock.now_s())
        shown = [(row, state) for row, state in states if self._is_shown(row)]
        if is_first:
            self._codes = {row.id: code_of(state) for row, state in shown}
            self._specs = {row.id: row.specs for row, _ in shown}
        self.frames.snapshot(
            {
                "at": self._clock.unix_s(),
                "states": STATES,
                "nodes": [self._cells(row, state) for row, state in shown],
                "totals": self._totals_of(states),
                "matches": [self._public(record) for record in reversed(self._last.values())],
            }
        )

    def totals(self) -> dict[str, Any]:
        """Counts over all nodes, and what they do now."""
        return self._totals_of(self._states(self._clock.now_s()))

    def _totals_of(self, states: States) -> dict[str, Any]:
        counted = Counter(state.value for _, state in states)
        there = [row for row, state in states if state is not NodeState.OFFLINE]
        elsewhere = self._siblings.elsewhere()
        return {
            "nodes": counted,
            "gpus": sum(row.specs.gpu_count for row in there),
            "vram_gb": sum(map(vram_gb_of, there)),
            "jobs": self._dispatcher.running + elsewhere.jobs,
            "tokens_per_s": int(digits(round(self.tokens_per_s + elsewhere.tokens_per_s), 2)),
            "first_token_ms": two_digits(_middle_ms([self._first_tokens(), *elsewhere.first_tokens])),
        }

    @property
    def tokens_per_s(self) -> float:
        if len(self._totals) < 2:
            return 0.0
        (then_s, before), (now_s, after) = self._totals[0], self._totals[-1]
        return max(0, after - before) / (now_s - then_s) if now_s > then_s else 0.0

    def _difference(self, states: States) -> tuple[list[list[Any]], list[int]]:
        """Nodes that are new or different, in full; and of the others that changed, number and state in turns."""
        added: list[list[Any]] = []
        changed: list[int] = []
        for row, state in states:
            code = code_of(state)
            if self._specs.get(row.id) is not row.specs:
                if self._is_shown(row):
                    self._specs[row.id], self._codes[row.id] = row.specs, code
                    added.append(self._cells(row, state))
            elif self._codes[row.id] != code:
                self._codes[row.id] = code
                changed += (self._number(row.id), code)
        return added, changed

    def _is_shown(self, row: NodeRow) -> bool:
        if row.connected or self._siblings.has_link(row.id):
            return True
        return self._clock.unix_s() - (row.last_seen_unix_s or 0.0) < FORGET_OFFLINE_S

    def _states(self, now_s: float) -> States:
        return [(row, self._state(row, now_s)) for row in self._table]

    def _state(self, row: NodeRow, now_s: float) -> NodeState:
        state = state_of(row, now_s=now_s, rules=self._health)
        return NodeState.ONLINE if state is NodeState.OFFLINE and self._siblings.has_link(row.id) else state

    def _cells(self, row: NodeRow, state: NodeState) -> list[Any]:
        return node_cells(row, number=self._number(row.id), secret=self._secret, state=state)

    def _number(self, node_id: NodeId) -> int:
        return self._numbers.setdefault(node_id, len(self._numbers))

    def _public(self, match: Shown) -> dict[str, Any]:
        if isinstance(match, MatchRecord):
            return describe_public(match, [self._seen(attempt.node_id) for attempt in match.attempts])
        seen = [self._seen(NodeId(node)) for node in match.nodes]
        return match.public | {"nodes": [each.number for each in seen], "region": seen[-1].region if seen else None}

    def _seen(self, node_id: NodeId) -> Seen:
        row = self._table.get(node_id)
        return Seen(self._number(node_id), public_region(row.specs.region) if row else None)


def _began_unix_s(match: Shown) -> float:
    return match.created_unix_s if isinstance(match, MatchRecord) else float(match.public["at"])


def _middle_ms(medians: Sequence[tuple[float | None, int]]) -> float | None:
    """Of several processes' medians their mean, each by how many it stands for."""
    known = [(ms, count) for ms, count in medians if ms is not None and count]
    return sum(ms * count for ms, count in known) / sum(count for _, count in known) if known else None
