"""One bidder: whom it sends what, when it reveals, and which receipts it keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match.model import BidderContext, BidderOutput, BidState
from sparewatt.market.match.provider_match import ProviderMatch
from sparewatt.protocol.contracts.match_messages import RevealedBid, SignedCommit
from sparewatt.protocol.contracts.reasons import MessageRefusal
from tests.unit.market.match.liars import commit_list, reveal_list
from tests.unit.market.match.match_scene import (
    DOMAIN,
    ORDER_ID,
    VOTE_KEYS,
    bid_for,
    commit_for,
    context_for,
    key_of,
    signed_by,
)

CONTEXT = context_for()
BID = bid_for(0)
COMMIT = commit_for(BID)
OTHER = commit_for(bid_for(1))
VOTERS = [str(key.address) for key in VOTE_KEYS]


def a_bidder(*, started: bool = True) -> ProviderMatch:
    context = BidderContext(domain=DOMAIN, order_id=ORDER_ID, attempt=0, weights=CONTEXT.weights)
    bidder = ProviderMatch(context, BID, COMMIT)
    if started:
        bidder.start(0)
    return bidder


def sent(out: BidderOutput, kind: type[object]) -> list[int]:
    """Numbers of the validators that get a message of this kind."""
    return [VOTERS.index(key) for key, message in out.send if isinstance(message, kind)]


def hear(bidder: ProviderMatch, *numbers: int, naming: bool = True, now_ms: int = 10) -> BidderOutput:
    out = BidderOutput()
    for number in numbers:
        signed = commit_list(CONTEXT, number, [COMMIT, OTHER] if naming else [OTHER])
        out.send += bidder.receive(signed, now_ms=now_ms).send
    return out


def test_the_commit_goes_to_every_validator_and_again_until_it_has_closed() -> None:
    bidder = a_bidder(started=False)
    assert sent(bidder.start(0), SignedCommit) == [0, 1, 2, 3]
    assert bidder.next_tick_ms == 150
    assert bidder.tick(149).send == []
    assert sent(bidder.tick(150), SignedCommit) == [0, 1, 2, 3]
    hear(bidder, 1, now_ms=160)
    assert sent(bidder.tick(300), SignedCommit) == [0, 2, 3]


@pytest.mark.parametrize(
    ("code", "asked_again"),
    [
        (0, True),
        (MessageRefusal.UNBONDED, True),
        (MessageRefusal.BEHIND_CHAIN, True),
        (MessageRefusal.WRONG_ORDER_OR_ATTEMPT, True),
        (MessageRefusal.LATE, False),
        (MessageRefusal.FULL, False),
        (MessageRefusal.FAILED_BEFORE, False),
    ],
)
def test_a_final_refusal_is_not_asked_again(code: int, *, asked_again: bool) -> None:
    bidder = a_bidder()
    bidder.answered(VOTERS[2], code)
    assert (2 in sent(bidder.tick(150), SignedCommit)) == asked_again


def test_it_reveals_when_a_quorum_has_closed_and_not_before() -> None:
    bidder = a_bidder()
    assert sent(hear(bidder, 0, 1), RevealedBid) == []
    assert not bidder.may_reveal
    assert sent(bidder.tick(150), RevealedBid) == []
    assert sent(hear(bidder, 2, now_ms=151), RevealedBid) == [0, 1, 2, 3]
    assert bidder.may_reveal


def test_it_reveals_also_if_the_lists_do_not_name_it() -> None:
    bidder = a_bidder()
    assert sent(hear(bidder, 0, 1, 2, naming=False), RevealedBid) == [0, 1, 2, 3]
    assert bidder.state is BidState.SENT


def test_exactly_two_thirds_of_the_stake_have_not_closed_enough() -> None:
    context = context_for(weights=(2, 2, 1, 1))
    bidder = ProviderMatch(
        BidderContext(domain=DOMAIN, order_id=ORDER_ID, attempt=0, weights=context.weights), BID, COMMIT
    )
    bidder.start(0)
    assert hear(bidder, 0, 1).send == []
    assert sent(hear(bidder, 2), RevealedBid) == [0, 1, 2, 3]


def test_lists_of_strangers_or_of_another_match_count_for_nothing() -> None:
    bidder = a_bidder()
    stranger = key_of("a stranger")
    for number in range(4):
        signed = commit_list(CONTEXT, number, [COMMIT])
        bidder.receive(replace(signed, signature=signed_by(stranger, signed.list)), now_ms=1)
        bidder.receive(commit_list(replace(CONTEXT, attempt=1), number, [COMMIT]), now_ms=1)
    assert not bidder.may_reveal
    assert bidder.receipts() == ()


def test_lists_that_a_reveal_list_carries_count() -> None:
    bidder = a_bidder()
    carried = [commit_list(CONTEXT, number, [COMMIT]) for number in range(3)]
    out = bidder.receive(reveal_list(CONTEXT, 3, [], carried), now_ms=5)
    assert sent(out, RevealedBid) == [0, 1, 2, 3]


def test_one_acknowledgement_is_not_enough_because_its_signer_may_withhold_the_bid() -> None:
    bidder = a_bidder()
    hear(bidder, 0, 1, 2, 3)
    bidder.receive(reveal_list(CONTEXT, 1, [BID]), now_ms=20)
    assert sent(bidder.tick(160), RevealedBid) == [0, 2, 3]
    bidder.receive(reveal_list(CONTEXT, 2, [BID]), now_ms=170)
    bidder.tick(310)
    assert bidder.state is BidState.REVEALED
    assert bidder.next_tick_ms is None


def test_a_validator_that_closed_without_it_is_told_again() -> None:
    bidder = a_bidder()
    hear(bidder, 0, 1, 2, 3)
    bidder.receive(reveal_list(CONTEXT, 1, []), now_ms=20)
    assert sent(bidder.tick(160), RevealedBid) == [0, 1, 2, 3]


def test_states_follow_the_lists() -> None:
    bidder = a_bidder()
    states = [bidder.state]
    for numbers in ((0,), (1, 2)):
        hear(bidder, *numbers)
        states.append(bidder.state)
    for number in (1, 2):
        bidder.receive(reveal_list(CONTEXT, number, [BID]), now_ms=20)
        states.append(bidder.state)
    certified = BidState.CERTIFIED
    assert states == [BidState.SENT, BidState.COMMITTED, certified, certified, BidState.REVEALED]


@pytest.mark.parametrize(
    ("place", "state"), [(0, BidState.WON), (1, BidState.STANDBY), (2, BidState.STANDBY), (None, BidState.LOST)]
)
def test_the_chain_has_the_last_word(place: int | None, state: BidState) -> None:
    bidder = a_bidder()
    bidder.settled(place)
    assert bidder.state is state
    assert bidder.next_tick_ms is None
    assert hear(bidder, 0, 1, 2).send == []
    assert bidder.tick(1_000).send == []


def test_receipts_are_the_signed_lists_and_two_of_a_validator_at_most() -> None:
    bidder = a_bidder()
    lists = [commit_list(CONTEXT, 0, commits) for commits in ([COMMIT], [OTHER], [COMMIT, OTHER])]
    for signed in [*lists, lists[0]]:
        bidder.receive(signed, now_ms=5)
    bidder.receive(reveal_list(CONTEXT, 0, [BID]), now_ms=6)
    receipts = bidder.receipts()
    assert [receipt.list for receipt in receipts[:2]] == [lists[0].list, lists[1].list]
    assert [receipt.tag for receipt in receipts] == ["commit_list", "commit_list", "reveal_list"]


def test_after_a_restart_the_same_is_sent_again() -> None:
    assert a_bidder(started=False).start(9_000).send == a_bidder(started=False).start(0).send
