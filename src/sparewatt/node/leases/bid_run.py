"""Carries one bid to the validators: sends what the bidder's state machine says, and feeds it the lists they sign.

Each validator has a task that sends and one that polls, so a slow or lying one delays nobody. What a validator says
counts only by its signature, which the state machine checks: the reveal waits for commit lists of a quorum.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import InvalidField
from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.market.match.model import BidderOutput, BidState
from sparewatt.market.match.provider_match import ProviderMatch
from sparewatt.market.quorum import is_quorum, weight_of
from sparewatt.node.leases.validator_client import ValidatorCalls, lists_in
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    SignedCommit,
    SignedCommitList,
    SignedRevealList,
    decode_message,
    encode_message,
)
from sparewatt.protocol.signing import keccak256

OUTBOX_MAX = 4
"""Messages that wait for one validator. More are dropped: the state machine sends them again."""
LISTS_READ_MAX = 512
"""That one validator gives: contradictory lists of all 32 included. What it gives beyond is not read."""
POLL_PAUSE_S, POLL_PAUSE_OPEN_S, POLL_PAUSE_MAX_S = 0.02, 0.1, 2.0
"""Between two polls of a validator that has news; of one that has none or is silent, at most: while the windows are
open, and later."""
TICK_MAX_S = 0.5
GRACE_MS, WINDOWS_MS_MAX = 3_000, 10_000
"""So long after both windows, at most so long ones, a bid that validators refuse is given up."""


@dataclass(slots=True, kw_only=True, eq=False)
class BidRun:
    match: ProviderMatch
    order_id: str
    attempt: int
    weights: Mapping[str, int]
    urls: Mapping[str, str]
    """By vote key."""
    windows_ms: int
    """Commit and reveal together."""
    calls: ValidatorCalls
    clock: Clock
    refusals: dict[str, int] = field(init=False, default_factory=dict)
    """By vote key: the last answer that was none."""
    troubles: dict[str, str] = field(init=False, default_factory=dict)
    """By vote key: why there was no answer."""
    is_given_up: bool = field(init=False, default=False)
    _told: tuple[int | None] | None = field(init=False, default=None)
    _over: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _moved: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _outboxes: dict[str, asyncio.Queue[MatchMessage]] = field(init=False, default_factory=dict)
    _seen: set[bytes] = field(init=False, default_factory=set)
    _n_read: Counter[str] = field(init=False, default_factory=Counter)
    _started_ms: int = field(init=False, default=0)

    def settle(self, place: int | None) -> None:
        """The attempt is said to be over: 0 for the winner, 1 and 2 for stand-ins.

        A bid that a quorum has listed must be revealed, whoever says that it has lost: the bond answers for it. So the
        run ends when validators have acknowledged it, or the windows are over.
        """
        self._told = (place,)
        self._moved.set()

    async def run(self, *, within_s: float) -> None:
        """Until it is settled, until validators make the bid hopeless, or until the time is up."""
        self._started_ms = self._now_ms()
        self._outboxes = {vote_key: asyncio.Queue(OUTBOX_MAX) for vote_key in self.urls}
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(work)
                    for vote_key, url in self.urls.items()
                    for work in (self._send_all(vote_key, url), self._poll(vote_key, url))
                ]
                background.append(tasks.create_task(self._tick()))
                await self._over.wait()
                for task in background:
                    task.cancel()

    def receipts(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(encode_message(each)) for each in self.match.receipts()]

    def _now_ms(self) -> int:
        return int(self.clock.now_s() * 1_000)

    def _put(self, output: BidderOutput) -> None:
        for vote_key, message in output.send:
            if (outbox := self._outboxes.get(vote_key)) is not None and not outbox.full():
                outbox.put_nowait(message)
        self._moved.set()

    async def _tick(self) -> None:
        self._put(self.match.start(self._now_ms()))
        while True:
            now_ms, due_ms = self._now_ms(), self.match.next_tick_ms
            if due_ms is not None and due_ms <= now_ms:
                self._put(self.match.tick(now_ms))
            self._end_if_over()
            wait_s = TICK_MAX_S if due_ms is None else min(TICK_MAX_S, max(0.001, (due_ms - now_ms) / 1e3))
            self._moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._moved.wait()

    def _end_if_over(self) -> None:
        is_early = self._is_early()
        if self._told is not None and (not is_early or self.match.state is BidState.REVEALED):
            self.match.settled(*self._told)
            self._over.set()
        elif not is_early and self._is_hopeless():
            self.is_given_up = True
            self._over.set()

    def _is_early(self) -> bool:
        return self._now_ms() - self._started_ms <= min(self.windows_ms, WINDOWS_MS_MAX) + GRACE_MS

    def _is_hopeless(self) -> bool:
        """No list names it, and those that refuse it leave no quorum: an order of long ago, or no bond."""
        total = sum(self.weights.values())
        left = total - weight_of(self.refusals, self.weights)
        return self.match.state is BidState.SENT and not is_quorum(left, total=total)

    async def _send_all(self, vote_key: str, url: str) -> None:
        outbox = self._outboxes[vote_key]
        while True:
            message = await outbox.get()
            try:
                reply = await self.calls.send(url, message)
            except NoAnswer as silent:
                self.troubles[vote_key] = str(silent)
                continue
            self.troubles.pop(vote_key, None)
            self._note_reply(vote_key, message, reply.code)
            self._take(vote_key, reply.replies)

    def _note_reply(self, vote_key: str, message: MatchMessage, code: int) -> None:
        if code:
            self.refusals[vote_key] = code
        else:
            self.refusals.pop(vote_key, None)
        if isinstance(message, SignedCommit):
            self.match.answered(vote_key, code)

    async def _poll(self, vote_key: str, url: str) -> None:
        have, run_id, pause_s = 0, "", POLL_PAUSE_S
        while True:
            try:
                progress = await self.calls.progress(url, self.order_id, self.attempt, have=have)
            except NoAnswer:
                has_news = False
            else:
                has_news = progress.version != have or progress.run_id != run_id
                have = progress.version if progress.run_id == run_id or not run_id else 0
                run_id = progress.run_id
                self._take(vote_key, lists_in(progress))
            most_s = POLL_PAUSE_OPEN_S if self._is_early() else POLL_PAUSE_MAX_S
            pause_s = POLL_PAUSE_S if has_news else min(most_s, 2 * pause_s)
            await sleep_until(self.clock, self.clock.now_s() + pause_s)

    def _take(self, source: str, documents: list[dict[str, Any]]) -> None:
        """Each list once. By all of its bytes: another's signature under a false list must not hide the true one."""
        for document in documents:
            body = msgspec.json.encode(document)
            digest = keccak256(body)
            if digest in self._seen or self._n_read[source] >= LISTS_READ_MAX:
                continue
            self._seen.add(digest)
            self._n_read[source] += 1
            with suppress(InvalidField):
                message = decode_message(body)
                if isinstance(message, SignedCommitList | SignedRevealList):
                    self._put(self.match.receive(message, now_ms=self._now_ms()))
