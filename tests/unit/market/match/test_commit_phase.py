"""Which commits a validator takes, whom it keeps when there are too many, and what it learns from others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from sparewatt.market.match import commit_phase
from sparewatt.market.match.commit_phase import CommitPhase
from sparewatt.market.match.model import AuctionContext, BidderStanding
from sparewatt.market.match.signatures import SignatureCheck
from sparewatt.protocol.contracts.match_messages import SignedCommit
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.signing import keccak256
from tests.order_terms import order_terms
from tests.unit.market.match.liars import commit_list
from tests.unit.market.match.match_scene import (
    DOMAIN,
    NODE_KEYS,
    ORDER_ID,
    PROVIDERS,
    VOTE_KEYS,
    bid_for,
    commit_for,
    context_for,
    decline_for,
    profile_of,
    signed_by,
)

CONTEXT = context_for([profile_of(number) for number in range(6)])
VOTERS = [str(key.address) for key in VOTE_KEYS]


def phase_for(
    context: AuctionContext = CONTEXT, standings: Mapping[str, BidderStanding] = MappingProxyType({})
) -> CommitPhase:
    known = {*context.weights, *context.node_keys.values()}
    return CommitPhase(
        context,
        SignatureCheck(DOMAIN, known=known),
        lambda provider: standings.get(provider, BidderStanding.GOOD),
    )


def copy_of(commit: SignedCommit, *, by: int) -> SignedCommit:
    copied = replace(commit.commit, provider=PROVIDERS[by])
    return SignedCommit(copied, signed_by(NODE_KEYS[by], copied))


def test_a_commit_is_held_and_listed() -> None:
    phase = phase_for()
    commits = [commit_for(bid_for(number)) for number in (2, 0, 1)]
    assert [phase.take(commit) for commit in commits] == [0, 0, 0]
    own = phase.own_list()
    assert list(own.bid_ids) == sorted(commit.commit.bid_id for commit in commits)
    assert (own.order_id, own.attempt) == (ORDER_ID, 0)


def test_an_upper_case_address_is_the_same_provider() -> None:
    phase = phase_for()
    commit = commit_for(bid_for(0))
    shouted = replace(commit, commit=replace(commit.commit, provider="0x" + PROVIDERS[0][2:].upper()))
    assert phase.take(shouted) == 0
    assert phase.take(commit) == 0
    assert list(phase.held) == [PROVIDERS[0]]


def test_the_first_reason_is_told() -> None:
    """Standing before the window; being known to the registry before being in the snapshot."""
    closed = phase_for(standings={PROVIDERS[0]: BidderStanding.UNBONDED, PROVIDERS[1]: BidderStanding.NOT_ACTIVE})
    closed.is_open = False
    assert closed.take(commit_for(bid_for(0))) == MessageRefusal.UNBONDED
    assert closed.take(commit_for(bid_for(1))) == MessageRefusal.NOT_ACTIVE
    assert closed.take(commit_for(bid_for(2))) == MessageRefusal.LATE
    small = phase_for(context_for([profile_of(0)]), {PROVIDERS[1]: BidderStanding.NOT_ACTIVE})
    assert small.take(commit_for(bid_for(1))) == MessageRefusal.NOT_ACTIVE
    assert small.take(commit_for(bid_for(2))) == MessageRefusal.NOT_IN_SNAPSHOT


def test_what_is_held_is_acknowledged_after_the_close_and_another_bid_is_a_duplicate() -> None:
    phase = phase_for()
    phase.take(commit_for(bid_for(0)))
    phase.is_open = False
    assert phase.take(commit_for(bid_for(0))) == 0
    assert phase.take(commit_for(bid_for(0, price=9))) == MessageRefusal.DUPLICATE


# too many


def hash_place(number: int) -> bytes:
    return keccak256(ORDER_ID + bytes.fromhex(PROVIDERS[number][2:]))


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (3, 0, 5, 1, 4, 2)])
def test_of_too_many_the_lowest_hashes_stay_whoever_was_first(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    monkeypatch.setattr(commit_phase, "LIST_MAX", 3)
    phase = phase_for()
    codes = {number: phase.take(commit_for(bid_for(number))) for number in order}
    best = sorted(range(6), key=hash_place)[:3]
    assert set(phase.held) == {PROVIDERS[number] for number in best}
    assert set(codes.values()) <= {0, MessageRefusal.FULL}
    assert all(codes[number] == 0 for number in best)
    dropped = next(number for number in range(6) if number not in best)
    assert phase.take(commit_for(bid_for(dropped))) == MessageRefusal.FULL


def test_eligible_profiles_go_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_phase, "LIST_MAX", 2)
    last = sorted(range(6), key=hash_place)[-2:]
    profiles = [profile_of(number, country=49 if number in last else 50) for number in range(6)]
    phase = phase_for(context_for(profiles, terms=order_terms(countries=1 << 49)))
    for number in range(6):
        phase.take(commit_for(bid_for(number)))
    assert set(phase.held) == {PROVIDERS[number] for number in last}


# early close


def test_everybody_has_answered_by_commit_or_decline() -> None:
    phase = phase_for(context_for([profile_of(0), profile_of(1), profile_of(2, tier=9)], terms=order_terms(tiers=2)))
    assert not phase.everybody_has_answered()
    phase.take(commit_for(bid_for(0)))
    assert not phase.everybody_has_answered()
    assert phase.take_decline(decline_for(1)) == 0
    assert phase.everybody_has_answered()


def test_the_first_decline_of_a_provider_is_kept() -> None:
    phase = phase_for()
    phase.take_decline(decline_for(1, code=65))
    phase.take_decline(decline_for(1, code=66))
    assert [signed.decline.code for signed in phase.declined.values()] == [65]


def test_one_who_declined_may_still_commit() -> None:
    phase = phase_for()
    phase.take_decline(decline_for(1))
    assert phase.take(commit_for(bid_for(1))) == 0


def test_some_have_closed_by_lists_of_more_than_a_third() -> None:
    phase = phase_for()
    phase.take_lists([(VOTERS[0], commit_list(CONTEXT, 0, []))])
    assert not phase.some_have_closed()
    phase.take_lists([(VOTERS[1], commit_list(CONTEXT, 1, []))])
    assert phase.some_have_closed()


# what others list


def test_commits_of_other_lists_are_held_while_the_window_is_open() -> None:
    phase = phase_for(standings={PROVIDERS[1]: BidderStanding.UNBONDED})
    commits = [commit_for(bid_for(number)) for number in range(2)]
    phase.take_lists([(VOTERS[0], commit_list(CONTEXT, 0, commits))])
    assert list(phase.held) == [PROVIDERS[0]], "who has no bond is not held by hearsay either"
    assert phase.commit_of(commits[1].commit.bid_id, PROVIDERS[1]) == commits[1], "but known, if others certify it"


def test_after_the_close_they_are_known_and_not_held() -> None:
    phase = phase_for()
    phase.is_open = False
    commit = commit_for(bid_for(0))
    phase.take_lists([(VOTERS[0], commit_list(CONTEXT, 0, [commit]))])
    assert phase.held == {}
    assert phase.commit_of(commit.commit.bid_id, PROVIDERS[0]) == commit
    assert phase.own_list().bid_ids == ()


def test_a_commit_that_no_list_names_is_not_kept() -> None:
    phase = phase_for()
    phase.is_open = False
    signed = replace(commit_list(CONTEXT, 0, []), commits=(commit_for(bid_for(0)),))
    phase.take_lists([(VOTERS[0], signed)])
    assert phase.taken_count == 0


@pytest.mark.parametrize("commit", [commit_for(bid_for(0), key=NODE_KEYS[1]), commit_for(bid_for(0, attempt=3))])
def test_a_forged_commit_in_a_list_is_not_kept(commit: SignedCommit) -> None:
    phase = phase_for()
    phase.take_lists([(VOTERS[0], commit_list(CONTEXT, 0, [commit]))])
    assert (phase.held, phase.taken_count) == ({}, 0)
    assert not phase.is_complete(commit_list(CONTEXT, 0, [commit]).list)


def test_copies_of_a_bid_id_cannot_crowd_its_owner_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_phase, "SAME_ID_MAX", 2)
    phase = phase_for()
    phase.is_open = False
    own = commit_for(bid_for(0))
    copies = [copy_of(own, by=number) for number in (1, 2, 3)]
    named = commit_list(CONTEXT, 0, [own]).list
    phase.take_lists([(VOTERS[0], replace(commit_list(CONTEXT, 0, [own]), commits=tuple(copies)))])
    assert len(phase.commits_of(named.bid_ids)) == 2
    phase.take_relayed([own])
    assert phase.commit_of(own.commit.bid_id, PROVIDERS[0]) is None, "there is no room"
    phase.set_owner(own.commit.bid_id, PROVIDERS[0])
    assert not phase.is_complete(named)
    phase.take_relayed([*copies, own])
    assert phase.commits_of(named.bid_ids) == [own]
    assert phase.is_complete(named)


def test_a_copy_that_is_held_does_not_stand_for_the_owner() -> None:
    phase = phase_for()
    own = commit_for(bid_for(0))
    phase.take(copy_of(own, by=1))
    named = commit_list(CONTEXT, 0, [own]).list
    assert phase.is_complete(named)
    phase.set_owner(own.commit.bid_id, PROVIDERS[0])
    assert not phase.is_complete(named)


def test_an_own_list_comes_back_after_a_restart_without_what_is_no_longer_valid() -> None:
    signed = commit_list(CONTEXT, 2, [commit_for(bid_for(0)), commit_for(bid_for(1))])
    keys = {**CONTEXT.node_keys, PROVIDERS[1]: str(NODE_KEYS[5].address)}
    phase = phase_for(replace(CONTEXT, node_keys=keys))
    phase.restore(signed, signer=VOTERS[2])
    assert not phase.is_open
    assert list(phase.held) == [PROVIDERS[0]]
    assert [each.list for _, each in phase.book.lists()] == [signed.list]
