"""What the chain says of an attempt and of its bidders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from sparewatt.market.chain_records import BondRecord, MarketState, RegistryStatus
from sparewatt.market.event_fold import apply_event
from sparewatt.market.match.context import ContextUnavailable, context_of, may_claim, standing_of
from sparewatt.market.match.model import BidderStanding
from sparewatt.market.rule import snapshot_tree
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import Profile
from sparewatt.protocol.typed_message import contract_domain, struct_hash
from tests.unit.market.market_events import (
    ALICE,
    BOB,
    CAROL,
    NODE_KEY,
    ORDER,
    OTHER_ORDER,
    OTHER_VOTE_KEY,
    TERMS,
    VOTE_KEY,
    accepted,
    created,
    handed_over,
    in_blocks,
    lookup,
    of_lease,
    registered,
    snapshot,
    validator,
    weighed,
)
from tests.unit.market.match.match_scene import profile_of

DOMAIN = contract_domain(chain_id=31_337, contract="0x" + "5a" * 20)
TABLE = [profile_of(0, provider=ALICE), profile_of(1, provider=BOB)]
HOUR = TERMS.max_price_uusd


def a_posted_snapshot(table: Iterable[Profile] = TABLE) -> ChainEvent:
    event = snapshot(1)
    return replace(event, args={**event.args, "root": "0x" + snapshot_tree(table)[1].root.hex()})


def a_state(*more: ChainEvent) -> MarketState:
    state = MarketState()
    events = [
        validator(),
        weighed(VOTE_KEY, version=1, weight=5, total=5),
        weighed(OTHER_VOTE_KEY, version=2, weight=3, total=8),
        *registered(ALICE),
        a_posted_snapshot(),
        lookup(),
        *more,
    ]
    for event in in_blocks(events):
        apply_event(state, event)
    state.bonds[ALICE] = BondRecord(free_uusd=HOUR)
    return state


def test_a_context_has_what_the_chain_says_at_the_lookup() -> None:
    state = a_state(weighed(OTHER_VOTE_KEY, version=3, weight=9, total=14))
    context = context_of(state, ORDER, domain=DOMAIN, table=TABLE)
    assert context.order_id == bytes.fromhex(ORDER[2:])
    assert context.policy_hash == struct_hash(TERMS)
    assert context.weights == {VOTE_KEY: 5, OTHER_VOTE_KEY: 3}, "later stake does not count"
    assert set(context.profiles) == {ALICE, BOB}
    assert (context.stake_version, context.snapshot_epoch, context.attempt) == (2, 1, 0)
    assert context.snapshot_root == snapshot_tree(TABLE)[1].root
    assert context.node_keys == {ALICE: NODE_KEY}


def test_a_key_of_after_the_opening_does_not_count() -> None:
    state = a_state()
    alice = state.providers[ALICE]
    (change,) = alice.node_keys
    opened_at = state.orders[ORDER].opened_at[0]
    state.providers[ALICE] = replace(alice, node_keys=(replace(change, since=opened_at),))
    assert context_of(state, ORDER, domain=DOMAIN, table=TABLE).node_keys == {}


@pytest.mark.parametrize(
    "table", [TABLE[:1], [], [TABLE[0], replace(TABLE[1], zone=3)], [TABLE[0], replace(TABLE[1], zone=99)]]
)
def test_another_table_than_the_snapshots_is_refused(table: list[Profile]) -> None:
    with pytest.raises(ContextUnavailable, match="table"):
        context_of(a_state(), ORDER, domain=DOMAIN, table=table)


def test_without_snapshot_weights_or_open_order_there_is_no_context() -> None:
    with pytest.raises(ContextUnavailable, match="not open"):
        context_of(a_state(), OTHER_ORDER, domain=DOMAIN, table=TABLE)
    with pytest.raises(ContextUnavailable, match="not open"):
        context_of(a_state(accepted(), created()), ORDER, domain=DOMAIN, table=TABLE)
    with pytest.raises(ContextUnavailable, match="epoch 7"):
        context_of(a_state(lookup(snapshot_epoch=7, attempt=1)), ORDER, domain=DOMAIN, table=TABLE)
    with pytest.raises(ContextUnavailable, match="stake version 40"):
        context_of(a_state(lookup(stake_version=40, attempt=1)), ORDER, domain=DOMAIN, table=TABLE)
    with pytest.raises(ContextUnavailable, match="no validator"):
        context_of(a_state(lookup(stake_version=0, attempt=1)), ORDER, domain=DOMAIN, table=TABLE)


# standing


def standing(state: MarketState, provider: str = ALICE, *, others: tuple[str, ...] = ()) -> BidderStanding:
    return standing_of(state, provider, order_id=ORDER, open_commits=others)


def test_a_registered_active_bonded_provider_is_good() -> None:
    assert standing(a_state()) is BidderStanding.GOOD
    assert standing(a_state(), ALICE.upper().replace("0X", "0x")) is BidderStanding.GOOD
    assert standing(a_state(), BOB) is BidderStanding.NOT_REGISTERED


@pytest.mark.parametrize("status", [each for each in RegistryStatus if each is not RegistryStatus.ACTIVE])
def test_only_active_providers_bid(status: RegistryStatus) -> None:
    state = a_state()
    state.providers[ALICE] = replace(state.providers[ALICE], status=status)
    assert standing(state) is BidderStanding.NOT_ACTIVE


def test_an_hour_of_the_highest_price_has_to_be_free() -> None:
    state = a_state()
    state.bonds[ALICE] = BondRecord(free_uusd=HOUR - 1, locked_uusd=HOUR, unbonding_uusd=HOUR)
    assert standing(state) is BidderStanding.UNBONDED
    del state.bonds[ALICE]
    assert standing(state) is BidderStanding.UNBONDED


def test_one_bond_does_not_back_two_bids() -> None:
    state = a_state(lookup(OTHER_ORDER))
    assert standing(state) is BidderStanding.GOOD
    assert standing(state, others=(ORDER,)) is BidderStanding.GOOD, "this order counts once"
    assert standing(state, others=(OTHER_ORDER,)) is BidderStanding.UNBONDED
    state.bonds[ALICE] = BondRecord(free_uusd=2 * HOUR)
    assert standing(state, others=(OTHER_ORDER, ORDER)) is BidderStanding.GOOD


def test_who_failed_in_this_order_is_out() -> None:
    state = a_state()
    state.orders[ORDER] = replace(state.orders[ORDER], failed=frozenset({ALICE}))
    assert standing(state) is BidderStanding.FAILED_BEFORE
    assert standing_of(state, ALICE, order_id=OTHER_ORDER, open_commits=()) is BidderStanding.GOOD


def stands_by(*more: ChainEvent, providers: tuple[str, ...] = (BOB, ALICE)) -> MarketState:
    """Another order has a lease, and Alice stands by for it."""
    lease = [
        lookup(OTHER_ORDER),
        accepted(OTHER_ORDER, providers=providers),
        created(OTHER_ORDER, provider=providers[0]),
    ]
    return a_state(*lease, *more)


def test_a_place_as_stand_in_needs_bond_as_well() -> None:
    state = stands_by()
    assert may_claim(state, state.orders[OTHER_ORDER], ALICE)
    assert standing(state) is BidderStanding.UNBONDED
    state.bonds[ALICE] = BondRecord(free_uusd=2 * HOUR)
    assert standing(state) is BidderStanding.GOOD


def test_a_vacant_lease_may_be_claimed_by_those_after_its_last_provider() -> None:
    event = handed_over(BOB)
    vacant = stands_by(replace(event, args={**event.args, "lease_id": OTHER_ORDER}), providers=(BOB, ALICE, CAROL))
    order = vacant.orders[OTHER_ORDER]
    assert [may_claim(vacant, order, each) for each in (BOB, ALICE, CAROL)] == [False, True, True]
    taken = created(OTHER_ORDER, provider=ALICE, term=2, position=1)
    state = stands_by(taken, providers=(BOB, ALICE, CAROL))
    assert [may_claim(state, state.orders[OTHER_ORDER], each) for each in (BOB, ALICE, CAROL)] == [False, False, True]


def test_nobody_claims_a_lease_that_is_closed_or_waits_for_an_auction() -> None:
    closed = stands_by(of_lease("LeaseClosed", OTHER_ORDER, reason=1, by=BOB))
    order = closed.orders.get(OTHER_ORDER)
    assert order is None or not may_claim(closed, order, ALICE)
    assert standing(closed) is BidderStanding.GOOD
    state = a_state()
    assert not may_claim(state, state.orders[ORDER], ALICE)
