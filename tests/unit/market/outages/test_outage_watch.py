"""When validators sign that a provider is down, whom they believe, and that all come to the same second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.chain_records import LeaseRecord, LeaseState, MarketState, RegistryStatus
from sparewatt.market.outages.model import DownCertificate, Hearing, OutageOutput
from sparewatt.market.outages.outage_watch import SIGNATURES_MAX, STALL_BEATS, OutageWatch
from sparewatt.protocol.contracts.match import Down
from sparewatt.protocol.contracts.outage_messages import OutageMessage, OutageStatus, SignedDown
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.signing import SigningKey, recover_address
from sparewatt.protocol.typed_message import message_digest
from tests.unit.market.match.match_scene import DOMAIN, PROVIDERS, VOTE_KEYS
from tests.unit.validator.host_scene import a_state, an_order

DOWN_S, ATTEMPT_S, BEAT_MS, STEP_MS = 10, 60, 2_000, 100
START_S = 20_000
LEASED = PROVIDERS[0]
OTHERS = PROVIDERS[1:3]
STRANGER = SigningKey(bytes([99] * 32))


def a_market(**changes: Any) -> MarketState:
    order = an_order()
    order = replace(order, terms=replace(order.terms, down_s=DOWN_S))
    state = a_state(order)
    usual = LeaseRecord(
        lease_id=order.order_id,
        renter=order.renter,
        state=LeaseState.ACTIVE,
        provider=LEASED,
        term=1,
        position=0,
        rate_uusd=1,
        locked_uusd=1,
        confirm_by=START_S,
        created_at=START_S,
        running_since=START_S,
    )
    lease = replace(usual, **changes)
    state.leases[order.order_id] = lease
    return state


LEASE_ID = an_order().order_id


@dataclass
class Ears:
    """Heartbeats that one validator has heard."""

    heard: dict[str, int] = field(default_factory=dict)
    held: dict[tuple[str, int], int] = field(default_factory=dict)

    def heard_at(self, provider: str) -> int | None:
        return self.heard.get(provider)

    def held_at(self, provider: str, lease_id: str, term: int) -> int | None:
        assert lease_id == LEASE_ID
        return self.held.get((provider, term))


@dataclass
class Judge:
    """One validator, its clocks and its ears."""

    number: int = 0
    state: MarketState = field(default_factory=a_market)
    stored: Sequence[SignedDown] = ()
    now_s: int = START_S + 5
    ears: Ears = field(default_factory=Ears)
    is_current: bool = True
    reached: int = 0
    signed: list[SignedDown] = field(default_factory=list)
    sent: list[OutageMessage] = field(default_factory=list)
    certificates: list[DownCertificate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = OutageWatch(
            key=VOTE_KEYS[self.number],
            domain=DOMAIN,
            attempt_s=ATTEMPT_S,
            beat_ms=BEAT_MS,
            submit_step_ms=STEP_MS,
            stored=self.stored,
        )
        self.watch.follow(self.state)

    def hearing(self) -> Hearing:
        return Hearing(
            beats=self.ears,
            unix_s=self.now_s,
            now_ms=self.now_s * 1_000,
            is_current=self.is_current,
            validators=len(VOTE_KEYS) - 1,
            reached_validators=self.reached,
        )

    def hear(self, *providers: str, term: int = 1) -> None:
        for provider in providers:
            self.ears.heard[provider] = self.now_s
            self.ears.held[provider, term] = self.now_s

    def pass_s(self, seconds: int, *beating: str) -> None:
        """Second by second; these providers beat all the while."""
        for _ in range(seconds):
            self.now_s += 1
            self.hear(*beating)
            self.take(self.watch.tick(self.hearing()))

    def receive(self, message: OutageMessage) -> OutageOutput:
        output = self.watch.receive(message, self.hearing())
        self.take(output)
        return output

    def take(self, output: OutageOutput) -> None:
        self.signed += output.signed
        self.sent += output.broadcast
        self.certificates += output.certificates

    @property
    def times(self) -> list[int]:
        return [vote.down.down_since for vote in self.signed]


def a_vote(number: int, since: int, *, key: SigningKey | None = None, **changes: Any) -> SignedDown:
    usual: dict[str, Any] = {
        "lease_id": bytes.fromhex(LEASE_ID[2:]),
        "term": 1,
        "provider": LEASED,
        "down_since": since,
    }
    down = Down(**{**usual, **changes})
    return SignedDown(down, (key or VOTE_KEYS[number]).sign(message_digest(DOMAIN, down)))


def a_silent_judge(silent_s: int = DOWN_S, **changes: Any) -> Judge:
    """It heard everybody until now, then the leased provider no more."""
    judge = Judge(**changes)
    judge.pass_s(5, LEASED, *OTHERS)
    judge.pass_s(silent_s, *OTHERS)
    return judge


# one validator


def test_a_silent_provider_is_signed_down_once_with_the_second_it_was_last_heard() -> None:
    judge = a_silent_judge(DOWN_S - 1)
    assert judge.signed == []
    judge.pass_s(10, *OTHERS)
    (vote,) = judge.signed
    assert vote.down == Down(bytes.fromhex(LEASE_ID[2:]), 1, LEASED, START_S + 10)
    assert recover_address(message_digest(DOMAIN, vote.down), vote.signature) == VOTE_KEYS[0].address
    assert judge.sent == [vote] * 10, "it is sent again until the lease has moved"
    assert judge.certificates == [], "one of four is no quorum"


def test_a_provider_that_beats_again_in_time_is_never_signed() -> None:
    judge = a_silent_judge(DOWN_S - 1)
    judge.pass_s(1, LEASED, *OTHERS)
    judge.pass_s(DOWN_S - 1, *OTHERS)
    assert judge.signed == []


def test_one_that_beats_but_holds_the_lease_no_more_is_down() -> None:
    judge = Judge()
    judge.pass_s(5, LEASED, *OTHERS)
    for _ in range(DOWN_S):
        judge.ears.heard[LEASED] = judge.now_s
        judge.pass_s(1, *OTHERS)
    assert judge.times == [START_S + 10]


def test_what_it_held_in_an_earlier_term_does_not_count() -> None:
    judge = Judge(state=a_market(term=2))
    for _ in range(DOWN_S + 1):
        judge.hear(LEASED, term=1)
        judge.pass_s(1, *OTHERS)
    assert judge.times == [START_S + 6], "since its first look"


@pytest.mark.parametrize("state", [each for each in LeaseState if each is not LeaseState.ACTIVE])
def test_only_a_lease_that_runs_has_outages(state: LeaseState) -> None:
    judge = a_silent_judge(60, state=a_market(state=state))
    assert (judge.signed, judge.sent, judge.watch.open_cases) == ([], [], 0)


@pytest.mark.parametrize("status", [RegistryStatus.MAINTENANCE, RegistryStatus.SUSPENDED])
def test_maintenance_excuses_nobody_from_a_lease_that_runs(status: RegistryStatus) -> None:
    state = a_market()
    state.providers[LEASED] = replace(state.providers[LEASED], status=status)
    judge = Judge(state=state)
    judge.pass_s(60, LEASED, *OTHERS)
    assert judge.signed == [], "it beats, so it holds what it promised"
    judge.pass_s(DOWN_S, *OTHERS)
    assert len(judge.signed) == 1


def test_a_term_has_its_own_time_to_begin() -> None:
    """A stand-in that has just started was not heard before."""
    judge = Judge(state=a_market(running_since=START_S + 20))
    judge.pass_s(24, *OTHERS)
    assert judge.signed == []
    judge.pass_s(1, *OTHERS)
    assert judge.times == [START_S + 20]


# not hearing is not dead


def test_one_that_is_cut_off_signs_nothing() -> None:
    judge = Judge()
    judge.pass_s(5, LEASED, *OTHERS)
    judge.pass_s(60)
    assert judge.signed == []


def test_half_of_the_others_are_enough() -> None:
    judge = Judge()
    judge.pass_s(5, LEASED, *OTHERS)
    judge.pass_s(60, OTHERS[0])
    assert len(judge.signed) == 1


def test_others_that_were_not_heard_for_an_hour_or_have_left_do_not_count() -> None:
    judge = Judge()
    gone = [each for each in judge.state.providers if each not in (LEASED, *OTHERS)]
    judge.hear(*gone)
    for provider in gone:
        judge.state.providers[provider] = replace(judge.state.providers[provider], status=RegistryStatus.LEFT)
    judge.ears.heard["0x" + "ee" * 20] = judge.now_s
    judge.pass_s(5, LEASED, *OTHERS)
    judge.pass_s(DOWN_S, OTHERS[0])
    assert len(judge.signed) == 1


def test_with_fewer_than_two_others_the_validators_are_asked() -> None:
    judge = Judge()
    judge.pass_s(5, LEASED, OTHERS[0])
    judge.pass_s(DOWN_S + 3, OTHERS[0])
    assert (judge.signed, {type(each) for each in judge.sent}) == ([], {OutageStatus})
    judge.reached = 1
    judge.pass_s(1, OTHERS[0])
    assert judge.signed == [], "one of three is less than half"
    judge.reached = 2
    judge.pass_s(1, OTHERS[0])
    assert len(judge.signed) == 1


def test_one_that_does_not_see_the_chain_signs_nothing() -> None:
    judge = a_silent_judge(DOWN_S - 1)
    judge.is_current = False
    judge.pass_s(30, *OTHERS)
    judge.receive(a_vote(1, START_S + 10))
    assert judge.signed == []


@pytest.mark.parametrize("jumps", ["machine", "chain"])
def test_time_in_which_it_stood_still_is_nobodys_silence(jumps: str) -> None:
    """A laptop that slept, or a chain whose time jumped."""
    judge = Judge()
    judge.pass_s(5, LEASED, *OTHERS)
    skipped_s = STALL_BEATS * BEAT_MS // 1_000 + 1
    judge.now_s += skipped_s
    if jumps == "chain":
        usual = judge.hearing
        offset_ms = skipped_s * 1_000
        judge.hearing = lambda: replace(usual(), now_ms=usual().now_ms - offset_ms)  # type: ignore[method-assign]
    judge.pass_s(DOWN_S, *OTHERS)
    assert judge.signed == []
    judge.pass_s(1, *OTHERS)
    assert len(judge.signed) == 1


def test_one_that_has_just_started_waits_before_it_judges() -> None:
    judge = Judge(now_s=START_S + 500)
    judge.ears.held[LEASED, 1] = START_S + 100
    judge.pass_s(DOWN_S, *OTHERS)
    assert judge.signed == []
    judge.pass_s(1, *OTHERS)
    assert judge.times == [START_S + 501], "since then it has listened"


def test_what_was_signed_before_a_restart_is_not_signed_again() -> None:
    first = a_silent_judge()
    second = Judge(now_s=first.now_s, stored=first.signed)
    second.ears = first.ears
    second.receive(a_vote(1, START_S + 10))
    reply = second.receive(OutageStatus(bytes.fromhex(LEASE_ID[2:]), 1)).replies
    assert (second.signed, first.signed[0] in reply) == ([], True)


def test_without_weight_it_says_nothing() -> None:
    state = a_market()
    state.histories[VOTE_KEYS[0].address] = replace(state.histories[VOTE_KEYS[0].address], changes=())
    assert a_silent_judge(30, state=state).signed == []


# votes of others


def test_a_later_second_that_another_heard_is_taken_over() -> None:
    judge = a_silent_judge()
    judge.receive(a_vote(1, START_S + 12))
    assert judge.times == [START_S + 10], "by its own clock it is not long enough ago"
    judge.pass_s(2, *OTHERS)
    assert judge.times == [START_S + 10, START_S + 12]


def test_an_earlier_second_than_its_own_is_never_signed() -> None:
    judge = a_silent_judge()
    judge.receive(a_vote(1, START_S + 7))
    judge.receive(a_vote(2, START_S + 7))
    judge.receive(a_vote(3, START_S + 7))
    assert judge.times == [START_S + 10]
    assert judge.certificates == [], "it has heard it since, so it does not carry their certificate either"


def test_one_that_hears_the_provider_signs_for_nobody() -> None:
    judge = Judge()
    judge.pass_s(30, LEASED, *OTHERS)
    for number in (1, 2, 3):
        judge.receive(a_vote(number, judge.now_s - DOWN_S))
    judge.pass_s(5, LEASED, *OTHERS)
    assert (judge.signed, judge.certificates) == ([], [])


def test_a_certificate_is_given_up_when_the_provider_is_heard_again() -> None:
    judge = a_silent_judge()
    for number in (1, 2, 3):
        judge.receive(a_vote(number, START_S + 10))
    judge.pass_s(1, *OTHERS)
    assert judge.certificates
    judge.certificates.clear()
    judge.pass_s(5, LEASED, *OTHERS)
    assert judge.certificates == []


@pytest.mark.parametrize(
    ("vote", "code"),
    [
        (a_vote(1, START_S + 10, term=2), MessageRefusal.WRONG_ORDER_OR_ATTEMPT),
        (a_vote(1, START_S + 10, lease_id=b"\7" * 32), MessageRefusal.WRONG_ORDER_OR_ATTEMPT),
        (a_vote(1, START_S + 10, provider=OTHERS[0]), MessageRefusal.WRONG_ORDER_OR_ATTEMPT),
        (a_vote(1, START_S - 1), MessageRefusal.OUT_OF_RANGE),
        (a_vote(1, START_S + 10_000), MessageRefusal.OUT_OF_RANGE),
        (a_vote(1, START_S + 10, key=STRANGER), MessageRefusal.BAD_SIGNATURE),
        (replace(a_vote(1, START_S + 10), signature=bytes(65)), MessageRefusal.BAD_SIGNATURE),
        (replace(a_vote(1, START_S + 10), signature=a_vote(1, START_S + 11).signature), MessageRefusal.BAD_SIGNATURE),
    ],
)
def test_lies_are_refused_and_leave_nothing_behind(vote: SignedDown, code: MessageRefusal) -> None:
    judge = Judge()
    judge.pass_s(20, LEASED, *OTHERS)
    assert judge.receive(vote).code == code
    assert judge.watch.open_cases == 0


def test_a_quorum_is_more_than_two_thirds_and_one_submits_first() -> None:
    judges = [a_silent_judge(number=number) for number in range(4)]
    votes = [judge.signed[0] for judge in judges]
    for judge in judges:
        for vote in votes[:2]:
            judge.receive(vote)
    assert not any(judge.certificates for judge in judges[:2]), "two of four are half"
    for judge in judges:
        for vote in votes:
            judge.receive(vote)
    (first,) = [judge for judge in judges if judge.certificates]
    certificate = first.certificates[0]
    assert len(certificate.votes) >= 3
    assert list(certificate.signers) == sorted(certificate.signers, key=lambda each: int(each, 16))
    for judge in judges:
        judge.pass_s(1, *OTHERS)
    assert all(judge.certificates for judge in judges), "the others follow if it did not get through"


def test_a_lease_that_has_moved_is_nobodys_case_any_more() -> None:
    judge = a_silent_judge()
    judge.watch.follow(a_market(state=LeaseState.VACANT))
    judge.sent.clear()
    judge.pass_s(5, *OTHERS)
    assert (judge.sent, judge.watch.open_cases) == ([], 0)


def test_an_outage_that_goes_on_is_signed_again_when_the_certificate_has_ended() -> None:
    judge = a_silent_judge()
    judge.pass_s(ATTEMPT_S + 1, *OTHERS)
    assert judge.times == [START_S + 10, START_S + 10 + ATTEMPT_S]


def test_a_liar_that_names_a_later_second_each_time_makes_it_sign_a_bounded_number_of_times() -> None:
    judge = a_silent_judge(30)
    for _ in range(ATTEMPT_S):
        judge.receive(a_vote(1, judge.now_s - DOWN_S))
        judge.pass_s(1, *OTHERS)
    assert len(judge.signed) == SIGNATURES_MAX


@given(
    last_heard=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    hearing=st.sampled_from([None, 0, 1, 2, 3]),
)
def test_all_that_heard_it_stop_come_to_the_same_second(last_heard: list[int], hearing: int | None) -> None:
    """Each validator hears the last beat at another second; one may even hear it all the time."""
    judges = [Judge(number=number) for number in range(4)]
    for second in range(1, 40):
        for number, judge in enumerate(judges):
            hears = number == hearing or second <= last_heard[number]
            before = len(judge.sent)
            judge.pass_s(1, *OTHERS, *([LEASED] if hears else []))
            for message in judge.sent[before:]:
                for other in judges:
                    if other is not judge:
                        other.receive(message)
    silent = [judge for number, judge in enumerate(judges) if number != hearing]
    latest = START_S + 5 + max(last for number, last in enumerate(last_heard) if number != hearing)
    assert {judge.times[-1] for judge in silent} == {max(latest, START_S + 6)}
    assert all(judge.certificates[-1].down.down_since == judge.times[-1] for judge in silent)
    assert hearing is None or judges[hearing].signed == []
