"""Tells every validator that this node lives and which leases it holds: a signed heartbeat each beat, with jitter.

Nobody can reach a node behind NAT, so it tells. Each heartbeat answers the validator's last challenge; its number is
the time in milliseconds, which rises over restarts without a file. A silent validator delays no other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.rng import Rng
from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.node.leases.validator_client import ValidatorCalls
from sparewatt.protocol.api.validators import HeartbeatReply, HeartbeatRequest
from sparewatt.protocol.contracts.match import Heartbeat, held_term
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.contracts.message_ranges import HELD_MAX
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.link.lease_frames import MarketFacts, ValidatorPeer
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest

NO_CHALLENGE = bytes(32)
JITTER = 0.1
"""Of a beat, to both sides: a fleet must not beat in step."""
LEAST_GAP = 0.25
"""Of a beat, between the answer of a slow validator and the next heartbeat to it."""
LOOK_S, LOOK_MAX_S = 1.0, 15.0
"""How soon the set of validators is compared with the gateway's again, at the earliest and at the latest."""
SEQ_AHEAD_MS_MAX = 86_400_000
"""A validator that has heard a number from a clock ahead of ours is believed up to a day."""
_HASH = re.compile(r"0x[0-9a-f]{64}")


@dataclass(slots=True)
class ValidatorEar:
    """What is known of one validator."""

    challenge: bytes = NO_CHALLENGE
    seq: int = 0
    heard_unix_s: float | None = None
    """When it last accepted a heartbeat."""
    trouble: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Heartbeats:
    key: SigningKey
    calls: ValidatorCalls
    clock: Clock
    rng: Rng
    facts: Callable[[], MarketFacts | None]
    height: Callable[[], int | None]
    held: Callable[[], Iterable[tuple[bytes, int]]]
    is_offering: Callable[[], bool]
    ears: dict[str, ValidatorEar] = field(init=False, default_factory=dict)
    """By vote key."""
    _tasks: dict[ValidatorPeer, asyncio.Task[None]] = field(init=False, default_factory=dict)
    _due_s: float = field(init=False, default=0.0)
    """When the next heartbeats go out."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                wanted = self._wanted()
                for peer in self._tasks.keys() - wanted:
                    self._tasks.pop(peer).cancel()
                for peer in wanted - self._tasks.keys():
                    self._tasks[peer] = tasks.create_task(self._keep_beating(peer))
                self.ears = {peer.vote_key: self.ears.get(peer.vote_key, ValidatorEar()) for peer in wanted}
                await sleep_until(self.clock, self._next_look_s())

    def _next_look_s(self) -> float:
        """With the next heartbeats, where some are due: it costs no wake of its own."""
        now_s = self.clock.now_s()
        if not self._tasks:
            return now_s + LOOK_S
        return min(max(self._next_due_s(self._beat_s()), now_s + LOOK_S), now_s + LOOK_MAX_S)

    def _wanted(self) -> set[ValidatorPeer]:
        """An owner who offers no leases any more still holds those that run."""
        facts = self.facts()
        if facts is None or facts.provider is None or not (self.is_offering() or any(True for _ in self.held())):
            return set()
        return {peer for peer in facts.validators if peer.weight}

    async def _keep_beating(self, peer: ValidatorPeer) -> None:
        ear = self.ears.setdefault(peer.vote_key, ValidatorEar())
        while True:
            facts, due_s = self.facts(), self._next_due_s(self._beat_s())
            if facts is not None and facts.provider is not None:
                await self._beat(peer, ear, facts, provider=facts.provider)
            await sleep_until(self.clock, due_s)

    def _beat_s(self) -> float:
        facts = self.facts()
        return (facts.beat_ms if facts is not None else 1_000) / 1_000

    def _next_due_s(self, beat_s: float) -> float:
        """One time for all validators: a node that wakes once for four heartbeats spends half as much on them."""
        now_s = self.clock.now_s()
        if not now_s + LEAST_GAP * beat_s < self._due_s < now_s + 2 * beat_s:
            self._due_s = now_s + beat_s * (1 - JITTER + 2 * JITTER * self.rng.random())
        return self._due_s

    async def _beat(self, peer: ValidatorPeer, ear: ValidatorEar, facts: MarketFacts, *, provider: str) -> None:
        """A first heartbeat only asks for a challenge, and a stale challenge brings a new one: then at once again."""
        for _ in range(2):
            asks = ear.challenge == NO_CHALLENGE
            try:
                reply = await self.calls.beat(peer.url, self._signed(peer, ear, facts, provider=provider))
            except NoAnswer as silent:
                ear.trouble = str(silent)
                return
            self._take_reply(ear, reply, asked=asks)
            if not asks and reply.code != MessageRefusal.STALE_CHALLENGE:
                return

    def _signed(self, peer: ValidatorPeer, ear: ValidatorEar, facts: MarketFacts, *, provider: str) -> HeartbeatRequest:
        ear.seq = max(ear.seq + 1, int(self.clock.unix_s() * 1_000))
        beat = Heartbeat(
            provider=provider,
            validator=peer.vote_key,
            challenge=ear.challenge,
            seq=ear.seq,
            block_number=self.height() or 0,
            held=tuple(sorted({held_term(order_id, term) for order_id, term in self.held()}))[:HELD_MAX],
        )
        domain = contract_domain(chain_id=facts.chain_id, contract=facts.task_manager)
        signature = "0x" + self.key.sign(message_digest(domain, beat)).hex()
        return HeartbeatRequest(heartbeat=write_message(beat), signature=signature)

    def _take_reply(self, ear: ValidatorEar, reply: HeartbeatReply, *, asked: bool) -> None:
        if _HASH.fullmatch(reply.challenge):
            ear.challenge = bytes.fromhex(reply.challenge[2:])
        if reply.seq <= int(self.clock.unix_s() * 1_000) + SEQ_AHEAD_MS_MAX:
            ear.seq = max(ear.seq, reply.seq)
        if reply.code and not asked:
            ear.trouble = reply.reason or f"it refuses with {reply.code}"
        elif not asked:
            ear.heard_unix_s, ear.trouble = self.clock.unix_s(), None
