"""Bids behind the commits: which are taken, acknowledged and waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match import reveal_phase
from sparewatt.market.match.commit_phase import CommitPhase
from sparewatt.market.match.reveal_phase import RevealPhase
from sparewatt.protocol.contracts.match_messages import RevealedBid
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.market.match.liars import commit_list, reveal_list
from tests.unit.market.match.match_scene import PROVIDERS, SPEC, TERMS, bid_for, commit_for, context_for, profile_of
from tests.unit.market.match.test_commit_phase import VOTERS, copy_of, phase_for

CONTEXT = context_for()
BIDS = [bid_for(number) for number in range(3)]
IDS = [struct_hash(each.bid) for each in BIDS]


def phases(listed: dict[int, list[int]]) -> tuple[CommitPhase, RevealPhase]:
    """Each validator with the numbers of the bids that its list names; validator 0 is this one."""
    commits = phase_for(CONTEXT)
    commits.is_open = False
    for voter, numbers in listed.items():
        signed = commit_list(CONTEXT, voter, [commit_for(BIDS[number]) for number in numbers])
        if voter == 0:
            commits.restore(signed, signer=VOTERS[0])
        commits.take_lists([(VOTERS[voter], signed)])
    return commits, RevealPhase(CONTEXT, commits)


def test_a_body_is_taken_for_a_commit_that_is_held_or_that_some_list() -> None:
    _, reveals = phases({0: [0], 1: [1], 2: [1], 3: [2]})
    assert [reveals.take(each) for each in BIDS] == [0, 0, MessageRefusal.UNCERTIFIED]
    assert reveals.bid_count == 2
    assert reveals.take(BIDS[0]) == 0
    assert reveals.bid_count == 2
    assert reveals.is_known(BIDS[1])
    assert not reveals.is_known(BIDS[2])


def test_a_bid_of_one_who_committed_to_another_is_a_mismatch() -> None:
    _, reveals = phases({0: [0]})
    assert reveals.take(bid_for(0, price=7)) == MessageRefusal.REVEAL_MISMATCH


@pytest.mark.parametrize(
    "revealed",
    [
        RevealedBid(BIDS[0].bid, replace(TERMS, cpu_milli=1), SPEC),
        RevealedBid(BIDS[0].bid, TERMS, replace(SPEC, disk_mib=1)),
    ],
)
def test_hashes_are_those_of_the_bid_and_of_the_order(revealed: RevealedBid) -> None:
    _, reveals = phases({0: [0]})
    assert reveals.take(revealed) == MessageRefusal.TERMS
    assert reveals.bid(IDS[0]) is None


def test_only_certified_bids_are_acknowledged() -> None:
    _, reveals = phases({0: [0, 1, 2], 1: [0, 1], 2: [0]})
    for each in BIDS:
        assert reveals.take(each) == 0
    assert reveals.own_list().bid_ids == (IDS[0],)
    assert reveals.admitted() == [IDS[0]]


def test_a_list_of_ids_ascends() -> None:
    _, reveals = phases({0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]})
    for each in BIDS:
        reveals.take(each)
    assert list(reveals.own_list().bid_ids) == sorted(IDS)


def test_a_list_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reveal_phase, "LIST_MAX", 2)
    monkeypatch.setattr(reveal_phase, "LEAVES_END", 3)
    _, reveals = phases({0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]})
    for each in BIDS:
        reveals.take(each)
    assert len(reveals.own_list().bid_ids) == len(reveals.admitted()) == 2


def test_a_bid_without_its_own_commit_or_profile_is_not_admitted() -> None:
    commits, reveals = phases({})
    copied = copy_of(commit_for(BIDS[0]), by=1)
    for voter in range(1, 4):
        commits.take_lists([(VOTERS[voter], commit_list(CONTEXT, voter, [copied]))])
    assert reveals.take(BIDS[0]) == 0
    assert reveals.own_list().bid_ids == ()
    commits.take_relayed([commit_for(BIDS[0])])
    assert reveals.own_list().bid_ids == (IDS[0],)


def test_two_certified_bids_of_one_provider_are_never_both_admitted() -> None:
    """Outside the fault model, but no reason to propose what no contract accepts."""
    other = bid_for(0, price=5)
    commits, reveals = phases({})
    for voter in range(1, 4):
        for each in (BIDS[0], other):
            commits.take_lists([(VOTERS[voter], commit_list(CONTEXT, voter, [commit_for(each)]))])
    assert [reveals.take(BIDS[0]), reveals.take(other)] == [0, 0]
    assert reveals.admitted() == [min(IDS[0], struct_hash(other.bid))]


def test_reveals_are_complete_when_no_certified_bid_is_missing_and_none_can_come() -> None:
    commits, reveals = phases({0: [0], 1: [0]})
    assert not reveals.everything_is_revealed(), "lists of a quorum are to come"
    commits.take_lists([(VOTERS[2], commit_list(CONTEXT, 2, [commit_for(BIDS[0]), commit_for(BIDS[1])]))])
    assert reveals.unrevealed() == [IDS[0]]
    assert not reveals.everything_is_revealed()
    reveals.take(BIDS[0])
    assert reveals.everything_is_revealed(), "bid 1 can have two of four at most"


def test_a_bid_that_the_last_list_could_certify_is_waited_for() -> None:
    _, reveals = phases({0: [0, 1], 1: [0, 1], 2: [0]})
    reveals.take(BIDS[0])
    assert not reveals.everything_is_revealed()


def test_two_lists_of_a_validator_are_kept() -> None:
    _, reveals = phases({})
    kept = [reveals.take_list(reveal_list(CONTEXT, 1, BIDS[:count]), signer=VOTERS[1]) for count in (0, 0, 1, 2)]
    assert kept == [True, False, True, False]
    assert len(list(reveals.lists())) == 2
    assert not reveals.some_have_closed()
    reveals.take_list(reveal_list(CONTEXT, 2, []), signer=VOTERS[2])
    assert reveals.some_have_closed()
    assert not reveals.quorum_has_closed()
    reveals.take_list(reveal_list(CONTEXT, 3, []), signer=VOTERS[3])
    assert reveals.quorum_has_closed()


def test_a_list_is_complete_when_its_certified_bids_are_known() -> None:
    _, reveals = phases({0: [0, 1], 1: [0, 1], 2: [0]})
    named = reveal_list(CONTEXT, 1, BIDS[:2]).list
    assert not reveals.is_complete(named)
    reveals.take(BIDS[0])
    assert reveals.is_complete(named)


def test_a_provider_outside_the_snapshot_is_not_admitted() -> None:
    context = context_for([profile_of(1)])
    commits = phase_for(context)
    reveals = RevealPhase(context, commits)
    for voter in range(3):
        commits.take_lists([(VOTERS[voter], commit_list(context, voter, [commit_for(BIDS[0])]))])
    assert reveals.take(BIDS[0]) == 0
    assert not reveals.is_admitted(IDS[0])
    assert PROVIDERS[0] not in context.profiles
