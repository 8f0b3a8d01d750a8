"""What a node tells validators, and how it answers their challenges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.rng import seeded
from sparewatt.node.leases.heartbeats import SEQ_AHEAD_MS_MAX, Heartbeats
from sparewatt.protocol.api.validators import HeartbeatReply, HeartbeatRequest
from sparewatt.protocol.contracts.match import Heartbeat, held_term
from sparewatt.protocol.contracts.message_json import read_message
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.signing import recover_address
from sparewatt.protocol.typed_message import message_digest
from sparewatt.testing.clocks import ManualClock
from tests.unit.node.leases.lease_world import DOMAIN, NODE_KEY, PROVIDER, VOTE_KEYS, FakeValidators, market, url_of
from tests.waiting import turns, until

FIRST, *OTHERS = map(url_of, VOTE_KEYS)


def challenge(number: int) -> str:
    return f"0x{number:064x}"


class BeatingNode:
    def __init__(self, clock: Clock | None = None) -> None:
        self.validators, self.clock = FakeValidators(), clock or SystemClock()
        self.facts, self.held, self.is_offering = market(beat_ms=100), list[tuple[bytes, int]](), True
        self.heartbeats = Heartbeats(
            key=NODE_KEY,
            calls=self.validators,
            clock=self.clock,
            rng=seeded(1),
            facts=lambda: self.facts,
            height=lambda: 50,
            held=lambda: self.held,
            is_offering=lambda: self.is_offering,
        )

    def sent(self, url: str = FIRST) -> list[Heartbeat]:
        return [read_message(Heartbeat, request.heartbeat) for request in self.validators.beats[url]]


@asynccontextmanager
async def beating(node: BeatingNode | None = None) -> AsyncIterator[BeatingNode]:
    node = node or BeatingNode()
    task = asyncio.create_task(node.heartbeats.run())
    try:
        yield node
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_validator_hears_a_signed_heartbeat_of_its_own() -> None:
    async with beating() as node:
        node.held = [(b"\x02" * 32, 7), (b"\x01" * 32, 1)]
        await until(lambda: all(len(node.sent(url)) >= 2 for url in (FIRST, *OTHERS)))
        for key in VOTE_KEYS:
            asking, beat = node.sent(url_of(key))[:2]
            assert (asking.challenge, asking.validator) == (bytes(32), key.address)
            assert (beat.provider, beat.validator, beat.block_number) == (PROVIDER, key.address, 50)
            assert beat.held == tuple(sorted(held_term(*each) for each in node.held))
            request: HeartbeatRequest = node.validators.beats[url_of(key)][1]
            signature = bytes.fromhex(request.signature[2:])
            assert recover_address(message_digest(DOMAIN, beat), signature) == NODE_KEY.address


async def test_each_answers_the_last_challenge_and_numbers_rise() -> None:
    async with beating() as node:
        node.validators.beat_replies[FIRST] = [HeartbeatReply(challenge=challenge(number)) for number in (1, 2, 3)]
        await until(lambda: len(node.sent()) >= 4)
        beats = node.sent()[:4]
        assert ["0x" + beat.challenge.hex() for beat in beats] == [challenge(number) for number in range(4)]
        assert [beat.seq for beat in beats] == sorted({beat.seq for beat in beats})
        ear = node.heartbeats.ears[VOTE_KEYS[0].address]
        assert ear.heard_unix_s is not None
        assert ear.trouble is None


async def test_a_stale_challenge_is_answered_anew_at_once() -> None:
    node = BeatingNode()
    node.facts = market(beat_ms=600_000)
    node.validators.beat_replies[FIRST] = [
        HeartbeatReply(challenge=challenge(1)),
        HeartbeatReply(code=MessageRefusal.STALE_CHALLENGE, challenge=challenge(2)),
    ]
    async with beating(node):
        await until(lambda: len(node.sent()) == 2)
        await until(lambda: node.heartbeats.ears[VOTE_KEYS[0].address].trouble is not None)
        assert "0x" + node.heartbeats.ears[VOTE_KEYS[0].address].challenge.hex() == challenge(2)


async def test_a_validator_that_refuses_always_gets_two_a_beat_at_most() -> None:
    node = BeatingNode()
    node.facts = market(beat_ms=600_000)
    stale = HeartbeatReply(code=MessageRefusal.STALE_CHALLENGE, challenge=challenge(1))
    node.validators.beat_replies[FIRST] = [stale] * 50
    async with beating(node):
        await until(lambda: len(node.sent(OTHERS[2])) == 2)
        await turns()
        assert len(node.sent()) == 2


async def test_numbers_rise_over_a_restart_and_a_clock_set_back() -> None:
    ahead_ms = int(SystemClock().unix_s() * 1_000) + 3_600_000
    async with beating() as node:
        node.validators.beat_replies[FIRST] = [HeartbeatReply(challenge=challenge(1), seq=ahead_ms)]
        absurd = ahead_ms + 2 * SEQ_AHEAD_MS_MAX
        node.validators.beat_replies[OTHERS[0]] = [HeartbeatReply(challenge=challenge(1), seq=absurd)]
        await until(lambda: len(node.sent()) >= 2 and len(node.sent(OTHERS[0])) >= 2)
        assert node.sent()[1].seq == ahead_ms + 1
        assert node.sent(OTHERS[0])[1].seq < ahead_ms, "a liar cannot use up the numbers"


async def test_a_silent_validator_delays_no_other() -> None:
    node = BeatingNode()
    node.validators.hanging.add(FIRST)
    node.validators.silent.add(OTHERS[0])
    async with beating(node):
        await until(lambda: len(node.sent(OTHERS[1])) >= 3)
        assert node.sent() == []
        assert node.heartbeats.ears[VOTE_KEYS[1].address].trouble == "it refuses connections"


async def test_all_validators_hear_a_node_in_one_wake() -> None:
    """Each wake of an idle process costs as much as a heartbeat."""
    clock = ManualClock()
    node = BeatingNode(clock)
    node.facts = market(beat_ms=2_000)
    per_step, heard = [], 0
    async with beating(node):
        for _ in range(200):
            await turns()
            now_heard = sum(map(len, node.validators.beats.values()))
            per_step.append(now_heard - heard)
            heard = now_heard
            clock.advance(0.05)
    first, *later = [count for count in per_step if count]
    assert first == 2 * len(VOTE_KEYS), "it asks each for a challenge first"
    assert set(later) == {len(VOTE_KEYS)}
    assert 4 <= len(later) <= 6, "every two seconds, of ten"


async def test_nobody_beats_without_an_offer_or_a_provider() -> None:
    node = BeatingNode()
    node.is_offering = False
    async with beating(node):
        await turns()
        assert not node.validators.beats
    node.is_offering, node.facts = True, market(provider=None)
    async with beating(node):
        await turns()
        assert not node.validators.beats


async def test_a_lease_that_runs_is_told_although_no_more_are_offered() -> None:
    node = BeatingNode()
    node.is_offering, node.held = False, [(bytes(32), 1)]
    async with beating(node):
        await until(lambda: len(node.sent()) >= 2)


async def test_only_validators_with_weight_are_told() -> None:
    node = BeatingNode()
    first, *others = node.facts.validators
    node.facts = market(beat_ms=100, validators=(type(first)(first.vote_key, first.url, 0), *others))
    async with beating(node):
        await until(lambda: len(node.sent(OTHERS[0])) >= 2)
        assert node.sent() == []


async def test_nonsense_as_a_challenge_is_not_taken() -> None:
    async with beating() as node:
        node.validators.beat_replies[FIRST] = [HeartbeatReply(challenge="0xzz"), HeartbeatReply(challenge=challenge(5))]
        await until(lambda: len(node.sent()) >= 3)
        assert [beat.challenge for beat in node.sent()[:2]] == [bytes(32), bytes(32)]
        assert "0x" + node.sent()[2].challenge.hex() == challenge(5)
