"""Idempotency-Key over several processes: each such request is kept by the one process that its name falls to.

A process that gets one claims it there, produces the answer, and settles it there. A repetition claims too, and is told
the answer when it is there. If the keeper is away nothing is produced: a second run could be charged a second time. If
the producer dies, its claims are let go when it is back, and the same request may be tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from sparewatt.core.clock import Clock
from sparewatt.core.errors import IdempotencyMismatch, StoreUnavailable
from sparewatt.core.ids import new_id
from sparewatt.core.limits import IDEMPOTENT_ANSWER_BYTES_MAX
from sparewatt.core.rng import Rng
from sparewatt.gateway.kept_answers import Entry, Kept, KeptAnswers, Made, Which, conflict, mismatch
from sparewatt.gateway.siblings.asking import Asker
from sparewatt.gateway.siblings.questions import CLAIM, SETTLE, ClaimAsked, ClaimTold, KeptAnswer, SettleAsked

AWAY_RETRY_S = 1.0
WITHDRAWN_MAX = 1000
"""Claims that somebody took back while they waited or were under way, remembered for when they come."""
_T = TypeVar("_T")


class Claim(NamedTuple):
    """An answer that another process produces."""

    entry: Entry
    number: int
    token: str


class SharedAnswers:
    """Implements Elsewhere, and answers the others for what is kept here."""

    def __init__(self, kept: KeptAnswers, asker: Asker, *, clock: Clock, rng: Rng) -> None:
        self._kept = kept
        self._asker = asker
        self._clock = clock
        self._rng = rng
        self._claims: dict[Which, Claim] = {}
        self._withdrawn: OrderedDict[str, None] = OrderedDict()
        """Tokens of claims that were settled before they came: messages may overtake each other."""

    # what comes in here

    def keeps(self, which: Which) -> bool:
        return self._home(which) != self._asker.place.number

    def _home(self, which: Which) -> int:
        digest = hashlib.blake2b("\n".join(which).encode(), digest_size=8).digest()
        return int.from_bytes(digest) % self._asker.place.count

    async def once(
        self,
        which: Which,
        digest: bytes,
        produce: Callable[[], Awaitable[_T]],
        *,
        made: Callable[[_T], Made],
        on_repeat: Callable[[], object],
    ) -> _T | Kept:
        """Raises IdempotencyConflict, IdempotencyMismatch, or StoreUnavailable if its keeper is away."""
        token = new_id("claim", rng=self._rng)
        told = await self._claim(which, digest, token)
        match told.state:
            case "new":
                return await self._produce(which, token, produce, made)
            case "answered" if told.answer is not None:
                on_repeat()
                return Kept(told.answer.body, told.answer.headers)
            case "mismatch":
                raise mismatch()
            case _:
                on_repeat()
                raise conflict()

    async def _claim(self, which: Which, digest: bytes, token: str) -> ClaimTold:
        told: ClaimTold | None = None
        try:
            asked = ClaimAsked(self._asker.place.number, token, *which, digest)
            told = await self._asker.ask(self._home(which), CLAIM, asked)
        finally:
            if told is None:  # whether it was granted or not, nobody will produce it
                self._settle(which, token, None, keep=False)
        if told is None:
            raise StoreUnavailable(
                "The part of this gateway that keeps this Idempotency-Key is starting again. Try again.",
                retry_after_s=AWAY_RETRY_S,
            )
        return told

    async def _produce(
        self, which: Which, token: str, produce: Callable[[], Awaitable[_T]], made: Callable[[_T], Made]
    ) -> _T:
        came = Made(is_answer=False)
        try:
            reply = await produce()
            came = made(reply)
            return reply
        finally:
            self._settle(which, token, came.kept if came.is_answer else None, keep=came.is_answer)

    def _settle(self, which: Which, token: str, answer: Kept | None, *, keep: bool) -> None:
        is_kept = answer is not None and answer.size_bytes <= IDEMPOTENT_ANSWER_BYTES_MAX
        told = KeptAnswer(answer.body, dict(answer.headers)) if answer is not None and is_kept else None
        self._asker.tell(self._home(which), SETTLE, SettleAsked(token, *which, answer=told, keep=keep))

    # what others ask

    async def claim(self, asked: ClaimAsked) -> ClaimTold:
        which = (asked.key, asked.name)
        while asked.token not in self._withdrawn:
            try:
                entry, is_new = self._kept.begin(which, asked.digest, now_s=self._clock.now_s())
            except IdempotencyMismatch:
                return ClaimTold("mismatch")
            if is_new:
                self._claims[which] = Claim(entry, asked.number, asked.token)
                return ClaimTold("new")
            await entry.over.wait()
            if entry.answer is not None:
                return ClaimTold("answered", KeptAnswer(entry.answer.body, dict(entry.answer.headers)))
            if self._kept.has(which, entry):
                return ClaimTold("conflict")
            await asyncio.sleep(0)
        return ClaimTold("conflict")  # nobody waits for it any more

    def settle(self, asked: SettleAsked) -> bool:
        """False if there is no such claim."""
        which = (asked.key, asked.name)
        claim = self._claims.get(which)
        if claim is None or claim.token != asked.token:
            self._withdrawn[asked.token] = None
            if len(self._withdrawn) > WITHDRAWN_MAX:
                self._withdrawn.popitem(last=False)
            return False
        del self._claims[which]
        answer = Kept(asked.answer.body, asked.answer.headers) if asked.answer is not None else None
        self._kept.end(which, claim.entry, answer, keep=asked.keep)
        return True

    def let_go(self, number: int) -> None:
        """That process is another one now: what it was to produce will not come."""
        for which in [which for which, claim in self._claims.items() if claim.number == number]:
            self._kept.end(which, self._claims.pop(which).entry, None, keep=False)
