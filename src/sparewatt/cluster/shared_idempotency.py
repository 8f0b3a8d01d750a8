"""`Idempotency-Key` over several processes: each id belongs to the cache of one of them, by its hash.

The process that received a request claims the id at its owner, produces the answer, and settles it at the owner.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import CLAIM, SETTLE, ClaimReply, ClaimRequest, SettleRequest, YesReply
from sparewatt.core.clock import Clock
from sparewatt.core.errors import IdempotencyMismatch, RateLimited, StoreUnavailable
from sparewatt.core.ids import new_id
from sparewatt.core.rng import Rng
from sparewatt.edge.idempotency import (
    IDEMPOTENT_ANSWER_BYTES_MAX,
    CachedAnswer,
    IdempotencyCache,
    IdempotencyEntry,
    IdempotencyId,
    ProducedAnswer,
    Repetition,
    conflict,
    mismatch,
    produce_and_settle,
    too_many_running,
)

AWAY_RETRY_S = 1.0
WITHDRAWN_MAX = 1000
"""Claims that were settled before they arrived or were granted, remembered until they arrive."""
_T = TypeVar("_T")


class IdempotencyClaim(NamedTuple):
    """An answer that another process produces."""

    entry: IdempotencyEntry
    number: int
    token: str


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class SharedIdempotency:
    """Implements IdempotencyPeers, and answers peers for the ids that this process owns."""

    cache: IdempotencyCache
    client: PeerClient
    clock: Clock
    rng: Rng
    _claims: dict[IdempotencyId, IdempotencyClaim] = field(default_factory=dict)
    _withdrawn: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """Tokens of claims that were settled before they arrived: messages can overtake each other."""

    # requests that this process received

    def is_owned_by_peer(self, id_: IdempotencyId) -> bool:
        return self._owner(id_) != self.client.slot.number

    def _owner(self, id_: IdempotencyId) -> int:
        digest = hashlib.blake2b("\n".join(id_).encode(), digest_size=8).digest()
        return int.from_bytes(digest) % self.client.slot.count

    async def once(
        self,
        repetition: Repetition,
        produce: Callable[[], Awaitable[_T]],
        *,
        outcome: Callable[[_T], ProducedAnswer],
    ) -> _T | CachedAnswer:
        """Raises IdempotencyConflict, IdempotencyMismatch, RateLimited, or StoreUnavailable if the owner is down."""
        token = new_id("claim", rng=self.rng)
        reply = await self._claim(repetition, token)
        match reply.state:
            case "new":
                return await produce_and_settle(produce, outcome, partial(self._settle, repetition.id, token))
            case "answered" if reply.answer is not None:
                repetition.on_repeat()
                return reply.answer
            case "mismatch":
                raise mismatch()
            case "busy":
                raise too_many_running()
            case _:
                repetition.on_repeat()
                raise conflict()

    async def _claim(self, repetition: Repetition, token: str) -> ClaimReply:
        id_, reply = repetition.id, None
        try:
            request = ClaimRequest(self.client.slot.number, token, *id_, repetition.digest)
            reply = await self.client.ask(self._owner(id_), CLAIM, request)
        finally:
            if reply is None:  # granted or not, the answer will not be produced
                self._settle(id_, token, None, keep=False)
        if reply is None:
            raise StoreUnavailable(
                "The part of this gateway that has this Idempotency-Key is restarting. Try again in a second.",
                retry_after_s=AWAY_RETRY_S,
            )
        return reply

    def _settle(self, id_: IdempotencyId, token: str, answer: CachedAnswer | None, *, keep: bool) -> None:
        is_small = answer is not None and answer.size_bytes <= IDEMPOTENT_ANSWER_BYTES_MAX
        request = SettleRequest(token, *id_, answer=answer if is_small else None, keep=keep)
        self.client.send(self._owner(id_), SETTLE, request)

    # questions of peers

    def handlers(self) -> list[PeerHandler[ClaimRequest, ClaimReply] | PeerHandler[SettleRequest, YesReply]]:
        return [PeerHandler(CLAIM, self.claim), PeerHandler(SETTLE, self.settle)]

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        id_ = (request.key, request.name)
        while request.token not in self._withdrawn:
            try:
                entry, is_new = self.cache.begin(id_, request.digest, now_s=self.clock.now_s())
            except IdempotencyMismatch:
                return ClaimReply("mismatch")
            except RateLimited:
                return ClaimReply("busy")
            if is_new:
                self._claims[id_] = IdempotencyClaim(entry, request.number, request.token)
                return ClaimReply("new")
            await entry.over.wait()
            if entry.answer is not None:
                return ClaimReply("answered", entry.answer)
            if self.cache.has(id_, entry):
                return ClaimReply("conflict")
            await asyncio.sleep(0)
        return ClaimReply("conflict")  # withdrawn: the reply is not read

    async def settle(self, request: SettleRequest) -> YesReply:
        """No if there is no such claim."""
        id_ = (request.key, request.name)
        claim = self._claims.get(id_)
        if claim is None or claim.token != request.token:
            self._withdrawn[request.token] = None
            if len(self._withdrawn) > WITHDRAWN_MAX:
                self._withdrawn.popitem(last=False)
            return YesReply(False)
        del self._claims[id_]
        self.cache.end(id_, claim.entry, request.answer, keep=request.keep)
        return YesReply(True)

    def release(self, number: int) -> None:
        """Drop the claims of a process that restarted: it will not produce those answers."""
        for id_ in [id_ for id_, claim in self._claims.items() if claim.number == number]:
            self.cache.end(id_, self._claims.pop(id_).entry, None, keep=False)
