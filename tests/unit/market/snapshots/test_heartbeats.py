"""A validator hears nodes: challenges, when each was heard, and uptime that nobody can inflate."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.chain_records import MarketState, NodeKeyChange, ProviderRecord, RegistryStatus
from sparewatt.market.snapshots.heartbeats import (
    CHALLENGE_BEATS,
    DUE_BEATS_MIN,
    NO_CHALLENGE,
    STALL_BEATS,
    UPTIME_DAYS,
    BeatReply,
    ChainClock,
    HeartbeatBook,
)
from sparewatt.protocol.contracts.match import Heartbeat, held_term
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.contracts.snapshot_messages import SignedHeartbeat
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import contract_domain, message_digest
from sparewatt.trust.lease_record import DAY_S

DOMAIN = contract_domain(chain_id=31_337, contract="0x" + "aa" * 20)
ME, OTHER = "0x" + "1" * 40, "0x" + "2" * 40
ALICE, BOB = "0x" + "a" * 40, "0x" + "b" * 40
NODE, NEW_NODE = SigningKey(bytes([3] * 32)), SigningKey(bytes([4] * 32))
BEAT_MS = 2_000
START_S = 20_000 * DAY_S + 1_000
LEASE = "0x" + "05" * 32


def provider(address: str = ALICE, *, status: RegistryStatus = RegistryStatus.ACTIVE, key: SigningKey = NODE) -> Any:
    keys = (NodeKeyChange(key.address, 1),)
    return ProviderRecord(provider=address, status=status, registered_at=1, node_keys=keys)


class Listener:
    """A validator's book with its clock, and a node that answers it."""

    def __init__(self, *providers: ProviderRecord, saved: Any = None) -> None:
        self.now_ms = 0
        self.book = HeartbeatBook(validator=ME, domain=DOMAIN, beat_ms=BEAT_MS, now_ms=0, saved=saved)
        self.seq = 0
        self.asked = 0
        self.challenge = NO_CHALLENGE
        self.follow(*providers or (provider(),))

    def follow(self, *providers: ProviderRecord) -> None:
        state = MarketState(providers={record.provider: record for record in providers})
        self.book.follow(state, now_ms=self.now_ms)

    @property
    def unix_s(self) -> int:
        return START_S + self.now_ms // 1_000

    def wait(self, ms: int) -> None:
        """The process ticks meanwhile."""
        for _ in range(ms // 1_000):
            self.now_ms += 1_000
            self.book.tick(self.now_ms, unix_s=self.unix_s)
        self.now_ms += ms % 1_000

    def send(self, heartbeat: Heartbeat, key: SigningKey = NODE) -> BeatReply:
        self.asked += 1
        signature = key.sign(message_digest(DOMAIN, heartbeat))
        fresh = keccak256(self.asked.to_bytes(8, "big"))
        return self.book.receive(
            SignedHeartbeat(heartbeat, signature), now_ms=self.now_ms, unix_s=self.unix_s, fresh=fresh
        )

    def heartbeat(self, **changes: Any) -> Heartbeat:
        self.seq += 1
        usual = Heartbeat(ALICE, ME, self.challenge, self.seq, 7, ())
        return replace(usual, **changes)

    def beat(self, *, key: SigningKey = NODE, **changes: Any) -> int:
        """As a node does it: with the last challenge that it was given."""
        reply = self.send(self.heartbeat(**changes), key)
        self.challenge = reply.challenge
        return reply.code

    def live(self, beats: int, *, every_ms: int = BEAT_MS) -> None:
        for _ in range(beats):
            self.wait(every_ms)
            if self.beat() == MessageRefusal.STALE_CHALLENGE:
                self.beat()


# Challenges


def test_a_heartbeat_without_a_challenge_only_asks_for_one() -> None:
    listener = Listener()
    assert listener.beat() == 0
    assert listener.challenge != NO_CHALLENGE
    assert listener.book.heard_at(ALICE) is None
    assert listener.beat() == 0
    assert listener.book.heard_at(ALICE) == START_S


def test_each_accepted_heartbeat_gets_a_new_challenge() -> None:
    listener = Listener()
    seen = set()
    for _ in range(5):
        listener.beat()
        seen.add(listener.challenge)
    assert len(seen) == 5


def test_a_recorded_heartbeat_cannot_be_played_again() -> None:
    listener = Listener()
    listener.beat()
    recorded = listener.heartbeat()
    assert listener.send(recorded).code == 0
    heard_at = listener.book.heard_at(ALICE)
    listener.wait(BEAT_MS)
    assert listener.send(recorded).code == MessageRefusal.DUPLICATE
    again = replace(recorded, seq=recorded.seq + 1)
    assert listener.send(again).code == MessageRefusal.STALE_CHALLENGE
    assert listener.book.heard_at(ALICE) == heard_at


def test_a_stale_answer_is_told_the_challenge_that_counts() -> None:
    listener = Listener()
    listener.beat()
    listener.beat()
    current = listener.challenge
    reply = listener.send(listener.heartbeat(challenge=bytes([1] * 32)))
    assert reply == BeatReply(MessageRefusal.STALE_CHALLENGE, current, seq=2)
    assert listener.beat() == 0


def test_an_answer_that_was_held_back_is_stale() -> None:
    """A node signs its answer, dies, and a friend sends it later."""
    listener = Listener()
    listener.beat()
    answer = listener.heartbeat()
    listener.wait((CHALLENGE_BEATS + 1) * BEAT_MS)
    reply = listener.send(answer)
    assert reply.code == MessageRefusal.STALE_CHALLENGE
    assert reply.challenge != answer.challenge
    assert listener.book.heard_at(ALICE) is None


def test_the_sequence_must_rise() -> None:
    listener = Listener()
    listener.beat()
    assert listener.beat(seq=10) == 0
    assert listener.beat(seq=10) == MessageRefusal.DUPLICATE
    reply = listener.send(listener.heartbeat(seq=9))
    assert (reply.code, reply.seq) == (MessageRefusal.DUPLICATE, 10)
    assert listener.beat(seq=reply.seq + 1) == 0


@pytest.mark.parametrize(
    ("changes", "key", "code"),
    [
        ({"validator": OTHER}, NODE, MessageRefusal.WRONG_DOMAIN),
        ({"provider": BOB}, NODE, MessageRefusal.NOT_REGISTERED),
        ({}, NEW_NODE, MessageRefusal.BAD_SIGNATURE),
    ],
)
def test_what_is_not_for_this_validator_or_not_of_this_node_learns_and_changes_nothing(
    changes: dict[str, Any], key: SigningKey, code: int
) -> None:
    listener = Listener()
    listener.beat()
    before = listener.book.save()
    assert listener.send(listener.heartbeat(**changes), key) == BeatReply(code, NO_CHALLENGE)
    assert listener.book.save() == before


def test_bytes_that_are_no_signature_are_refused() -> None:
    listener = Listener()
    beat = SignedHeartbeat(listener.heartbeat(), bytes(65))
    reply = listener.book.receive(beat, now_ms=0, unix_s=START_S, fresh=bytes(32))
    assert reply.code == MessageRefusal.BAD_SIGNATURE


def test_a_signature_for_another_contract_is_refused() -> None:
    listener = Listener()
    heartbeat = listener.heartbeat()
    elsewhere = contract_domain(chain_id=31_337, contract="0x" + "bb" * 20)
    beat = SignedHeartbeat(heartbeat, NODE.sign(message_digest(elsewhere, heartbeat)))
    reply = listener.book.receive(beat, now_ms=0, unix_s=START_S, fresh=bytes(32))
    assert reply.code == MessageRefusal.BAD_SIGNATURE


def test_with_a_new_node_key_the_old_one_counts_no_more_and_the_sequence_starts_anew() -> None:
    listener = Listener()
    listener.beat()
    listener.beat(seq=1_000)
    listener.follow(provider(key=NEW_NODE))
    assert listener.beat(seq=1_001) == MessageRefusal.BAD_SIGNATURE
    listener.beat(seq=1, key=NEW_NODE)
    assert listener.beat(seq=2, key=NEW_NODE) == 0


def test_a_provider_that_left_is_not_heard_but_keeps_its_record() -> None:
    """Else it could leave and come back to be rid of its outages."""
    listener = Listener()
    listener.live(10)
    listener.wait(40 * 1_000)
    before = listener.book.uptime_ppm(ALICE)
    assert before is not None
    assert before < 500_000
    listener.follow(provider(status=RegistryStatus.LEFT))
    assert listener.beat() == MessageRefusal.NOT_REGISTERED
    listener.follow(provider())
    assert listener.book.uptime_ppm(ALICE) == before


# When it was heard


def test_a_lease_is_heard_when_the_node_names_it() -> None:
    listener = Listener()
    term = held_term(bytes.fromhex(LEASE[2:]), 1)
    listener.beat()
    listener.beat(held=(term,))
    listener.wait(10_000)
    listener.beat()
    listener.beat()
    assert listener.book.held_at(ALICE, LEASE, 1) == START_S
    assert listener.book.held_at(ALICE, LEASE, 2) is None
    assert listener.book.held_at(BOB, LEASE, 1) is None
    assert listener.book.heard_at(ALICE) == START_S + 10


def test_the_terms_that_a_node_names_are_bounded() -> None:
    listener = Listener()
    listener.beat()
    for number in range(10):
        terms = sorted(keccak256(bytes([number, each])) for each in range(64))
        listener.beat(held=tuple(terms))
    assert len(listener.book.save()["providers"][ALICE]["held"]) == 64


def test_the_book_holds_registered_providers_only() -> None:
    listener = Listener()
    for number in range(50):
        listener.beat(provider="0x" + f"{number:040x}")
    assert len(listener.book) == 1
    assert listener.book.heard_at(BOB) is None


def test_chain_time_runs_on_between_blocks() -> None:
    clock = ChainClock()
    clock.see_block(1_000, now_ms=5_000)
    assert clock.unix_s(5_999) == 1_000
    assert clock.unix_s(8_000) == 1_003
    clock.see_block(1_000, now_ms=9_000)
    assert clock.unix_s(9_000) == 1_004
    clock.see_block(1_002, now_ms=9_000)
    assert clock.unix_s(9_000) == 1_002


def test_the_height_of_the_nodes_chain_is_kept_as_its_word() -> None:
    listener = Listener()
    listener.beat()
    listener.beat(block_number=99)
    assert listener.book.block_number(ALICE) == 99
    assert listener.book.block_number(BOB) is None


# Uptime


def test_there_is_no_uptime_before_enough_beats_were_due() -> None:
    listener = Listener()
    listener.live(DUE_BEATS_MIN - 1)
    assert listener.book.uptime_ppm(ALICE) is None
    listener.live(2)
    assert listener.book.uptime_ppm(ALICE) == 1_000_000
    assert listener.book.uptime_ppm(BOB) is None


def test_a_node_whose_timer_is_late_loses_nothing() -> None:
    listener = Listener()
    listener.live(30, every_ms=BEAT_MS + 300)
    assert listener.book.uptime_ppm(ALICE) == 1_000_000


def test_a_node_that_is_silent_half_of_the_time_has_half() -> None:
    listener = Listener()
    listener.live(50)
    listener.wait(50 * BEAT_MS)
    found = listener.book.uptime_ppm(ALICE)
    assert found is not None
    assert abs(found - 500_000) < 20_000


def test_more_beats_than_due_gain_nothing() -> None:
    """Ten times as many in one half of the time do not fill the other half."""
    listener = Listener()
    listener.live(200, every_ms=BEAT_MS // 4)
    listener.wait(50 * BEAT_MS)
    found = listener.book.uptime_ppm(ALICE)
    assert found is not None
    assert found < 520_000


def test_a_burst_after_a_silence_stands_for_one_beat() -> None:
    listener = Listener()
    listener.live(10)
    listener.wait(40 * BEAT_MS)
    for _ in range(30):
        listener.beat()
    found = listener.book.uptime_ppm(ALICE)
    assert found is not None
    assert found <= 1_000_000 * 12 // 50


def test_maintenance_costs_nothing() -> None:
    listener = Listener()
    listener.live(20)
    listener.follow(provider(status=RegistryStatus.MAINTENANCE))
    listener.wait(100 * BEAT_MS)
    listener.follow(provider())
    listener.live(20)
    found = listener.book.uptime_ppm(ALICE)
    assert found is not None
    assert found >= 990_000


def test_beats_in_maintenance_are_heard_and_count_nothing() -> None:
    listener = Listener(provider(status=RegistryStatus.MAINTENANCE))
    listener.live(30)
    assert listener.book.heard_at(ALICE) is not None
    assert listener.book.uptime_ppm(ALICE) is None


def test_time_in_which_this_validator_stood_still_is_not_due() -> None:
    listener = Listener()
    listener.live(20)
    listener.now_ms += 100 * STALL_BEATS * BEAT_MS
    listener.live(20)
    found = listener.book.uptime_ppm(ALICE)
    assert found is not None
    assert found >= 950_000
    assert listener.book.running_ms < 50 * BEAT_MS


def test_only_the_last_thirty_days_count() -> None:
    listener = Listener()
    listener.live(20)
    listener.wait(200_000)
    low = listener.book.uptime_ppm(ALICE)
    assert low is not None
    assert low < 200_000
    listener.now_ms += UPTIME_DAYS * DAY_S * 1_000
    listener.book.tick(listener.now_ms, unix_s=listener.unix_s)
    assert listener.book.uptime_ppm(ALICE) is None
    assert listener.book.save()["providers"][ALICE]["days"] == {}


def test_a_book_that_was_saved_goes_on_where_it_was() -> None:
    listener = Listener()
    listener.live(20)
    listener.wait(20 * BEAT_MS)
    before = listener.book.uptime_ppm(ALICE)
    saved = json.loads(json.dumps(listener.book.save()))
    again = Listener(saved=saved)
    assert again.book.uptime_ppm(ALICE) == before
    assert again.book.heard_at(ALICE) == listener.book.heard_at(ALICE)
    assert again.book.save() == listener.book.save()


def test_a_record_waits_for_the_events_that_a_restarted_validator_has_still_to_read() -> None:
    listener = Listener()
    listener.live(20)
    before = listener.book.uptime_ppm(ALICE)
    again = Listener(provider(BOB), saved=listener.book.save())
    again.wait(100 * BEAT_MS)
    assert again.beat() == MessageRefusal.NOT_REGISTERED
    again.follow(provider(BOB), provider(ALICE))
    assert again.book.uptime_ppm(ALICE) == before == 1_000_000
    again.seq = listener.seq
    assert again.beat() == 0


def test_while_the_chain_does_not_have_a_provider_nothing_is_due() -> None:
    listener = Listener()
    listener.live(20)
    listener.follow(provider(BOB))
    listener.wait(100 * BEAT_MS)
    listener.follow(provider(ALICE), provider(BOB))
    found = listener.book.uptime_ppm(ALICE)
    assert found is not None
    assert found > 950_000


def test_after_a_restart_an_answer_to_an_old_challenge_is_worth_nothing() -> None:
    listener = Listener()
    listener.beat()
    answer = listener.heartbeat()
    again = Listener(saved=listener.book.save())
    assert again.send(answer).code == MessageRefusal.STALE_CHALLENGE
    assert again.book.heard_at(ALICE) is None


@given(st.lists(st.tuples(st.integers(1, 9_000), st.booleans()), max_size=60))
def test_uptime_is_never_more_than_the_share_of_time_that_beats_can_stand_for(steps: list[tuple[int, bool]]) -> None:
    """A beat stands for two and a half beats' time at most, whatever a node sends and when."""
    listener = Listener()
    listener.beat()
    accepted = 0
    for ms, beats in steps:
        listener.wait(ms)
        if beats:
            accepted += listener.beat() == 0
    found = listener.book.uptime_ppm(ALICE)
    if found is not None:
        gap_ms = 5 * BEAT_MS // 2
        due_ms = max(1, listener.book.running_ms - gap_ms)
        assert 0 <= found <= min(1_000_000, 1_000_000 * accepted * gap_ms // due_ms + 1)
