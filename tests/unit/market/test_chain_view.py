"""The view at its two heads: the same state from any division of the events, also over reorgs."""

from __future__ import annotations

import random

import pytest

from sparewatt.market.chain_records import MarketState, OrderState
from sparewatt.market.chain_view import ChainView, RollbackTooDeep
from sparewatt.market.event_fold import apply_event
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.market.market_events import ORDER, OTHER_ORDER, a_life, an_event, deposited, in_blocks, lookup

DEPTH = 3


def folded(events: list[ChainEvent]) -> MarketState:
    state = MarketState()
    for event in events:
        apply_event(state, event)
    return state


def up_to(events: list[ChainEvent], block: int) -> list[ChainEvent]:
    return [event for event in events if event.block_number <= block]


def between(events: list[ChainEvent], first: int, last: int) -> list[ChainEvent]:
    return [event for event in events if first <= event.block_number <= last]


def test_an_event_is_seen_at_once_and_final_at_its_depth() -> None:
    view = ChainView(depth=DEPTH)
    view.advance(in_blocks([lookup()], first=5), to_block=5)
    assert set(view.latest.orders) == {ORDER}
    assert view.final.orders == {}
    view.advance([], to_block=6)
    assert view.final.orders == {}
    view.advance([], to_block=7)
    assert view.final.orders == view.latest.orders
    assert (view.latest_block, view.final_block) == (7, 5)


def test_at_depth_one_all_is_final_at_once() -> None:
    view = ChainView(depth=1)
    view.advance(in_blocks([lookup()]), to_block=1)
    assert view.final == view.latest
    with pytest.raises(ValueError, match="at least 1"):
        ChainView(depth=0)


def test_an_order_that_a_reorg_removed_is_gone() -> None:
    view = ChainView(depth=DEPTH)
    events = in_blocks([lookup(), lookup(OTHER_ORDER)])
    view.advance(events, to_block=3)
    view.roll_back(to_block=1)
    assert set(view.latest.orders) == {ORDER}
    assert view.latest_block == 1
    cancelled = in_blocks([an_event("deployment_order.OrderCancelled", order_id=ORDER)], first=2)
    view.advance(cancelled, to_block=2)
    assert view.latest.orders[ORDER].state is OrderState.CLOSED


def test_a_reorg_below_the_final_block_needs_a_new_view() -> None:
    view = ChainView(depth=DEPTH)
    view.advance(in_blocks([lookup(), deposited()]), to_block=10)
    with pytest.raises(RollbackTooDeep):
        view.roll_back(to_block=7)
    assert set(view.latest.orders) == {ORDER}
    view.roll_back(to_block=8)
    assert (view.latest_block, view.final_block) == (8, 8)


def test_what_was_final_stays_final_after_a_rollback() -> None:
    view = ChainView(depth=DEPTH)
    view.advance(in_blocks([lookup()]), to_block=5)
    assert set(view.final.orders) == {ORDER}
    view.roll_back(to_block=3)
    view.advance([], to_block=4)
    assert view.final_block == 3
    assert set(view.final.orders) == {ORDER}


def test_a_rollback_to_a_block_ahead_changes_nothing() -> None:
    view = ChainView(depth=DEPTH)
    view.advance(in_blocks([lookup()]), to_block=2)
    view.roll_back(to_block=4)
    assert (view.latest_block, set(view.latest.orders)) == (2, {ORDER})


@pytest.mark.parametrize(
    ("events", "to_block"),
    [
        (in_blocks([lookup(OTHER_ORDER)], first=2), 2),
        (in_blocks([lookup(OTHER_ORDER)], first=5), 4),
        (in_blocks([lookup(), lookup(OTHER_ORDER)], first=3)[::-1], 4),
        ([], 1),
    ],
    ids=["again", "beyond its block", "in the wrong order", "backwards"],
)
def test_events_that_are_not_next_are_refused(events: list[ChainEvent], to_block: int) -> None:
    view = ChainView(depth=DEPTH)
    view.advance(in_blocks([lookup()], first=2), to_block=2)
    with pytest.raises(ValueError, match=r"behind|follow"):
        view.advance(events, to_block=to_block)


@pytest.mark.parametrize("seed", range(40))
def test_any_division_of_the_events_and_any_reorgs_end_in_the_same_state(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (repeatable)
    depth, per_block = rng.randint(1, 6), rng.randint(1, 4)
    events = in_blocks(a_life(), per_block=per_block)
    last = events[-1].block_number
    view = ChainView(depth=depth)
    while view.latest_block < last:
        first = max(1, view.latest_block + 1)
        to = min(last, first + rng.randint(0, 5))
        view.advance(between(events, first, to), to_block=to)
        assert view.latest == folded(up_to(events, to))
        assert view.final == folded(up_to(events, view.final_block))
        assert view.final_block <= to
        if rng.random() < 0.4:
            back = rng.randint(max(view.final_block, 0), to)
            view.roll_back(to_block=back)
            assert view.latest == folded(up_to(events, back))
    view.advance([], to_block=last + depth)
    assert view.final == view.latest == folded(events)


def test_a_view_that_begins_at_the_contracts_block_gives_the_same() -> None:
    events = in_blocks(a_life(), first=1_000)
    view = ChainView(depth=2, start_block=1_000)
    assert view.latest_block == 999
    view.advance(events, to_block=events[-1].block_number)
    assert view.latest == folded(events)


def test_a_copy_of_the_state_is_independent() -> None:
    state = folded(in_blocks(a_life()))
    copy = state.copy()
    assert copy == state
    apply_event(copy, in_blocks([lookup("0x" + "77" * 32)])[0])
    assert copy != state
