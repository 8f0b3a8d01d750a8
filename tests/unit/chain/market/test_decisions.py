"""What comes next for an order if nobody acts: an end, a new attempt, or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.chain.market.decisions import (
    ChainTime,
    DueAct,
    MarketAct,
    activation_of,
    activations,
    next_act,
    soonest,
)
from sparewatt.market.accrual import PaymentStream, due_uusd
from sparewatt.market.chain_records import MarketState, ValidatorRecord
from sparewatt.market.event_fold import apply_event
from sparewatt.market.reopening import REOPEN_BASE_S, REOPEN_DELAY_S_MAX, reopen_delay_s
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.market.market_events import (
    ALICE,
    BOB,
    OPERATOR,
    ORDER,
    START_S,
    TERMS,
    accepted,
    an_event,
    confirmed,
    created,
    deposited,
    handed_over,
    lookup,
    of_lease,
    stream_started,
)

ATTEMPT_S = 60
EXPIRES_AT = START_S + 86_400
UNMATCHED = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=98)


def after(*events: ChainEvent) -> MarketState:
    state = MarketState()
    for event in events:
        apply_event(state, replace(event, unix_s=START_S))
    return state


def act_after(*events: ChainEvent) -> DueAct | None:
    return next_act(after(*events), ORDER, attempt_s=ATTEMPT_S)


def test_an_open_attempt_ends_after_its_time() -> None:
    act = act_after(lookup(), deposited())
    assert act == DueAct(MarketAct.EXPIRE, ORDER, START_S + ATTEMPT_S + 1, f"expire:{ORDER}:0:open")


def test_the_next_attempt_has_another_key() -> None:
    first, second = act_after(lookup(), deposited()), act_after(lookup(attempt=1), deposited())
    assert first is not None
    assert second is not None
    assert first.key != second.key


def test_an_order_without_a_match_is_opened_again_while_its_renter_allows_it() -> None:
    act = act_after(lookup(), deposited(), UNMATCHED)
    assert act == DueAct(MarketAct.REOPEN, ORDER, START_S + REOPEN_BASE_S, f"reopen:{ORDER}:1")


def test_after_the_last_attempt_it_ends_at_once() -> None:
    act = act_after(lookup(attempt=3), deposited(), UNMATCHED)
    assert act == DueAct(MarketAct.EXPIRE, ORDER, START_S, f"expire:{ORDER}:3:end")
    secret = act_after(lookup(max_attempts=0), deposited(), UNMATCHED)
    assert secret is not None
    assert (secret.act, secret.due_at) == (MarketAct.EXPIRE, START_S)


def test_an_order_that_expires_before_it_could_be_opened_again_ends_then() -> None:
    act = act_after(lookup(expires_at=START_S + 5), deposited(), UNMATCHED)
    assert act == DueAct(MarketAct.EXPIRE, ORDER, START_S + 6, f"expire:{ORDER}:0:end")


def test_a_deposit_that_backs_no_further_attempt_opens_none() -> None:
    """The contract wants ten minutes at the highest price."""
    act = act_after(lookup(), deposited(deposit=499_999), UNMATCHED)
    assert act is not None
    assert (act.act, act.due_at) == (MarketAct.EXPIRE, EXPIRES_AT + 1)
    enough = act_after(lookup(), deposited(deposit=500_000), UNMATCHED)
    assert enough is not None
    assert enough.act is MarketAct.REOPEN


def test_a_lease_that_had_a_provider_waits_for_its_renter_until_it_expires() -> None:
    """Its renter may open it again beyond what anybody may."""
    had = (lookup(attempt=3), deposited(), accepted(attempt=3), created(), handed_over())
    unplaced = (of_lease("LeaseUnplaced", expires_at=EXPIRES_AT + 7), UNMATCHED)
    act = act_after(*had, *unplaced)
    assert act == DueAct(MarketAct.EXPIRE, ORDER, EXPIRES_AT + 8, f"expire:{ORDER}:3:end")


def test_a_vacant_lease_that_no_stand_in_claims_is_unplaced() -> None:
    act = act_after(lookup(), deposited(), accepted(providers=(ALICE, BOB)), created(), handed_over())
    assert act == DueAct(MarketAct.EXPIRE, ORDER, START_S + 201, f"expire:{ORDER}:1:vacant")


PLACED = (lookup(), deposited(), accepted(), created())
RUNNING = (*PLACED, confirmed(), stream_started())
RATE_UUSD = 2_000_000
EMPTY, BY_RENTER = 4, 1


def paused(reason: int, *, deposit: int) -> list[ChainEvent]:
    stopped = an_event("escrow.StreamStopped", lease_id=ORDER)
    return [*RUNNING, of_lease("LeasePaused", reason=reason), stopped, deposited(deposit=deposit)]


def test_a_winner_that_does_not_start_in_time_is_passed_over() -> None:
    act = act_after(*PLACED)
    assert act is not None
    assert (act.act, act.key) == (MarketAct.NO_START, f"no_start:{ORDER}:1:{act.due_at - 1}")


def test_a_stand_in_that_claimed_and_does_not_start_is_passed_over() -> None:
    matched = (lookup(), deposited(), accepted(providers=(ALICE, BOB)), created(), handed_over())
    claimed = created(provider=BOB, term=2, position=1)
    act = act_after(*matched, claimed)
    assert act is not None
    assert (act.act, act.key) == (MarketAct.NO_START, f"no_start:{ORDER}:2:{act.due_at - 1}")
    assert act_after(*matched, claimed, confirmed(), stream_started()) != act


def test_a_lease_whose_deposit_lasts_ends_with_the_agreed_time() -> None:
    act = act_after(*RUNNING)
    assert act == DueAct(MarketAct.CLOSE_DURATION, ORDER, START_S + 3_700, f"over:{ORDER}:1:{START_S + 3_700}")


@pytest.mark.parametrize(("deposit", "after_s"), [(1, 1), (555, 1), (556, 2), (1_000_000, 1_800)])
def test_a_deposit_that_runs_out_is_settled_in_that_second(deposit: int, after_s: int) -> None:
    """555 µUSD are earned in one second at two dollars an hour."""
    act = act_after(lookup(), deposited(deposit=deposit), accepted(), created(), confirmed(), stream_started())
    assert act is not None
    assert (act.act, act.due_at) == (MarketAct.SETTLE, START_S + after_s)
    stream = PaymentStream(deposit, rate_uusd=RATE_UUSD, since=START_S, end_at=START_S + 9_999)
    assert due_uusd(stream, at=act.due_at) == deposit
    assert due_uusd(stream, at=act.due_at - 1) < deposit


def test_a_lease_paused_for_want_of_money_goes_on_after_a_top_up_and_else_ends_after_the_grace() -> None:
    topped_up, empty = act_after(*paused(EMPTY, deposit=33_333)), act_after(*paused(EMPTY, deposit=33_332))
    assert topped_up is not None
    assert (topped_up.act, topped_up.due_at) == (MarketAct.RESUME, START_S)
    assert empty is not None
    assert (empty.act, empty.due_at) == (MarketAct.CLOSE_EMPTY, START_S + TERMS.empty_grace_s + 1)


def test_a_pause_of_the_renter_ends_by_itself_only_without_money() -> None:
    assert act_after(*paused(BY_RENTER, deposit=5_000_000)) is None
    empty = act_after(*paused(BY_RENTER, deposit=0))
    assert empty is not None
    assert empty.act is MarketAct.CLOSE_EMPTY


def test_nothing_is_due_for_an_order_that_has_ended() -> None:
    assert act_after(lookup(), an_event("deployment_order.OrderCancelled", order_id=ORDER)) is None
    assert next_act(MarketState(), ORDER, attempt_s=ATTEMPT_S) is None


def test_attempts_are_spaced_further_and_further() -> None:
    delays = [reopen_delay_s(attempt) for attempt in range(40)]
    assert delays[:4] == [10, 20, 40, 80]
    assert (delays == sorted(delays), delays[-1]) == (True, REOPEN_DELAY_S_MAX)


def test_stake_weighs_after_its_time_unless_its_operator_is_jailed() -> None:
    waiting = ValidatorRecord(operator=OPERATOR, vote_key="0x", pending_uusd=9, pending_since=START_S)
    act = activation_of(waiting, activate_s=2)
    assert act == DueAct(MarketAct.ACTIVATE, OPERATOR, START_S + 2, f"activate:{OPERATOR}:{START_S}:9")
    assert activation_of(replace(waiting, pending_uusd=0), activate_s=2) is None
    assert activation_of(replace(waiting, slashed_uusd=1), activate_s=2) is None
    assert activations({OPERATOR: waiting, "0x": replace(waiting, pending_uusd=0)}, activate_s=2) == [act]


def test_the_soonest_come_first_and_only_so_many() -> None:
    acts = [DueAct(MarketAct.EXPIRE, "", at, str(at)) for at in (5, 3, 9)]
    assert [act.due_at for act in soonest(acts, limit=2)] == [3, 5]


@pytest.mark.parametrize(("gone_s", "now"), [(0.0, 100), (0.9, 100), (61.5, 161)])
def test_chain_time_runs_on_between_blocks(gone_s: float, now: int) -> None:
    time = ChainTime()
    time.note(7, 100, now_s=50.0)
    time.note(7, 100, now_s=90.0)
    assert (time.now(50.0 + gone_s), time.of_block) == (now, 100)
    time.note(8, 200, now_s=90.0)
    assert time.now(90.0) == 200
