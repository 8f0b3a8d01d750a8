from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sparewatt.leasing.relay.lookups import (
    OrderedContent,
    ended_lease,
    facts_of,
    find_renter_nonce,
    held_leases,
    holder_of,
    is_content_of,
    is_open,
    is_url,
    lookup_of,
    outcome_of,
    validator_urls,
    weights_of,
)
from sparewatt.protocol.contracts.match import OrderTerms, Specification
from sparewatt.protocol.contracts.message_json import read_message
from sparewatt.protocol.link.lease_frames import HeldLease, LeaseLookup, MarketFacts
from sparewatt.trust.renter_record import RenterRecord
from tests.unit.leasing.relay.auction import (
    ADDRESSES,
    CONTENT,
    OPERATORS,
    PROVIDERS,
    RENTER_NONCE,
    SPECIFICATION,
    VOTE_KEYS,
    WEIGHTS,
    Auction,
)
from tests.unit.market.market_events import accepted, an_event, created, of_lease

AUCTION = Auction()
ID = AUCTION.id_text
STATE = AUCTION.state()
ORDER = STATE.orders[ID]
ORDERED = OrderedContent(SPECIFICATION, CONTENT)
WON = (accepted(ID, providers=(PROVIDERS[1], PROVIDERS[0])), created(ID, provider=PROVIDERS[1]))


def test_a_lookup_has_all_that_the_order_s_id_was_made_of() -> None:
    found = lookup_of(STATE, ORDER, ORDERED, renter_nonce=RENTER_NONCE, block_number=7)
    read = msgspec.json.decode(msgspec.json.encode(found), type=LeaseLookup)
    assert read == found, "a node's decoder takes it"
    assert read_message(OrderTerms, read.policy) == AUCTION.terms
    assert read_message(Specification, read.specification) == SPECIFICATION
    assert (read.weights, read.block_number, read.content) == (WEIGHTS, 7, CONTENT)


def test_a_lookup_carries_the_renters_record() -> None:
    state = STATE.copy()
    state.renters[ORDER.renter] = RenterRecord(orders=5, withdrawn=2, unstarted=1)
    found = lookup_of(state, ORDER, ORDERED, renter_nonce=RENTER_NONCE, block_number=7)
    assert (found.renter_orders, found.renter_broken) == (5, 3)
    state.renters.clear()
    found = lookup_of(state, ORDER, ORDERED, renter_nonce=RENTER_NONCE, block_number=7)
    assert (found.renter_orders, found.renter_broken) == (0, 0)


def test_content_that_does_not_hash_to_the_order_is_not_its_content() -> None:
    assert is_content_of(ORDER, ORDERED)
    assert not is_content_of(ORDER, OrderedContent(SPECIFICATION, CONTENT.replace("busybox", "miner")))
    assert not is_content_of(ORDER, OrderedContent(replace(SPECIFICATION, gpus=8), CONTENT))


def test_the_renter_s_number_of_an_order_is_found_by_trying() -> None:
    assert find_renter_nonce(ORDER, ADDRESSES, start=0, tries=10) == RENTER_NONCE
    assert find_renter_nonce(ORDER, ADDRESSES, start=0, tries=RENTER_NONCE) is None
    assert find_renter_nonce(ORDER, ADDRESSES, start=RENTER_NONCE + 1, tries=10) is None
    other = replace(ADDRESSES, chain_id=1)
    assert find_renter_nonce(ORDER, other, start=0, tries=10) is None, "an order of another chain"


def test_facts_name_the_validators_that_weigh_and_can_be_dialled() -> None:
    hostile = an_event(
        "stake_registry.ValidatorChanged", operator=OPERATORS[0], vote_key=VOTE_KEYS[0].address, url="ftp://\x00"
    )
    facts = facts_of(AUCTION.state(hostile), ADDRESSES, beat_ms=2_000, attempt_s=60, block_number=3)
    assert msgspec.json.decode(msgspec.json.encode(facts), type=MarketFacts) == facts
    assert [peer.vote_key for peer in facts.validators] == [each.address for each in VOTE_KEYS[1:]]
    assert {peer.weight for peer in facts.validators} == {100}
    assert (facts.stake_version, facts.provider, facts.held) == (4, None, None)


@pytest.mark.parametrize(
    "url", ["", "https://", "http://a b", "https://" + "a" * 300, "javascript:alert(1)", "https://\n"]
)
def test_what_no_frame_can_carry_is_no_url(url: str) -> None:
    assert not is_url(url)
    assert is_url("https://v.example:8443/base")


def test_weights_of_a_version_that_is_gone_are_none() -> None:
    assert weights_of(STATE, 4) == WEIGHTS
    assert weights_of(STATE, 99) == {}
    assert validator_urls(STATE, 99) == {}
    assert set(validator_urls(STATE, 2)) == {each.address for each in VOTE_KEYS[:2]}


def test_an_outcome_says_who_has_the_lease() -> None:
    state = AUCTION.state(*WON)
    results = {provider: outcome_of(state, ID, 0, provider=provider, block_number=9).result for provider in PROVIDERS}
    assert results == {PROVIDERS[0]: "standby", PROVIDERS[1]: "won", PROVIDERS[2]: "lost"}
    won = outcome_of(state, ID, 0, provider=PROVIDERS[1], block_number=9)
    assert (won.provider, won.term, won.pay_uusd, won.block_number) == (PROVIDERS[1], 1, 2_000_000, 9)


def test_an_attempt_without_a_winner_has_none() -> None:
    unmatched = AUCTION.state(an_event("deployment_order.OrderUnmatched", order_id=ID, attempt=0, reason=98))
    assert outcome_of(unmatched, ID, 0, provider=PROVIDERS[0], block_number=1).result == "none"
    reopened = AUCTION.state(AUCTION.lookup_event(attempt=1))
    assert outcome_of(reopened, ID, 0, provider=PROVIDERS[0], block_number=1).result == "none"
    assert outcome_of(STATE, "0x" + "ff" * 32, 0, provider=PROVIDERS[0], block_number=1).result == "none"
    assert (is_open(reopened, ID, 0), is_open(reopened, ID, 1)) == (False, True)


def test_a_lease_that_ended_is_held_by_nobody() -> None:
    held, closed = AUCTION.state(*WON), AUCTION.state(*WON, of_lease("LeaseClosed", ID, reason=1))
    assert (holder_of(held, ID), holder_of(closed, ID), holder_of(STATE, ID)) == (PROVIDERS[1], None, None)
    assert held_leases(held, {ID: PROVIDERS[1]}) == {PROVIDERS[1]: (HeldLease(ID, 1),)}
    assert ended_lease(closed, ID, block_number=4).result == "ended"
    assert ended_lease(closed, ID, block_number=4).provider is None
