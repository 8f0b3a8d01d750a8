"""Observations, proposals and votes of one epoch, and the certificate in them."""

from __future__ import annotations

from sparewatt.market.snapshots.epoch_votes import ROUNDS_KEPT, EpochVotes
from sparewatt.protocol.contracts.match import Observations, ReputationSnapshot
from sparewatt.protocol.contracts.snapshot_messages import SignedObservations, SignedSnapshot, SnapshotProposal

A, B, C, D = ("0x" + digit * 40 for digit in "1234")
EQUAL = {A: 1, B: 1, C: 1, D: 1}


def vote(round_: int = 0, *, root: int = 1) -> SignedSnapshot:
    return SignedSnapshot(ReputationSnapshot(1, round_, bytes([root] * 32), 1, bytes(32)), bytes(65))


def votes(*cast: tuple[str, SignedSnapshot]) -> EpochVotes:
    found = EpochVotes(1)
    for signer, each in cast:
        found.add_vote(signer, each)
    return found


def test_more_than_two_thirds_for_one_table_in_one_round_are_a_certificate() -> None:
    found = votes((C, vote()), (A, vote()), (B, vote())).certificate(EQUAL)
    assert found is not None
    assert found.signers == (A, B, C), "ascending"
    assert [each.snapshot for each in found.votes] == [vote().snapshot] * 3


def test_two_thirds_exactly_are_none() -> None:
    cast = votes((A, vote()), (B, vote()))
    assert cast.certificate({A: 1, B: 1, C: 1}) is None
    assert cast.certificate({A: 2, B: 1, C: 1}) is not None


def test_votes_for_other_tables_or_of_other_rounds_are_not_counted_together() -> None:
    assert votes((A, vote()), (B, vote()), (C, vote(root=2)), (D, vote(1))).certificate(EQUAL) is None


def test_votes_of_an_older_round_are_a_certificate_too() -> None:
    found = votes((A, vote()), (A, vote(1)), (B, vote()), (B, vote(1)), (C, vote(0))).certificate(EQUAL)
    assert found is not None
    assert found.snapshot.round == 0


def test_a_certificate_goes_by_the_weights_that_are_current() -> None:
    cast = votes((A, vote()), (B, vote()), (C, vote()))
    assert cast.certificate({A: 1, B: 1, D: 1}) is None
    found = cast.certificate({A: 2, B: 2, D: 1})
    assert found is not None
    assert found.signers == (A, B), "C has no weight any more"


def test_nobody_has_no_certificate() -> None:
    assert EpochVotes(1).certificate(EQUAL) is None
    assert votes((A, vote())).certificate({}) is None


def test_the_first_vote_of_a_round_counts_and_a_second_one_is_evidence() -> None:
    cast = votes((A, vote()))
    assert not cast.add_vote(A, vote(root=2))
    fault = cast.double_sign(A, vote(root=2))
    assert fault is not None
    assert (fault.signer, fault.first, fault.second) == (A, vote(), vote(root=2))
    assert cast.double_sign(A, vote()) is None
    assert cast.double_sign(A, vote(1, root=2)) is None
    assert cast.double_sign(B, vote(root=2)) is None


def test_a_round_is_reached_when_more_than_a_third_have_voted_in_it_or_after() -> None:
    assert votes().reached(EQUAL) == -1
    assert votes((A, vote(9))).reached(EQUAL) == -1
    assert votes((A, vote(9)), (B, vote(4))).reached(EQUAL) == 4
    assert votes((A, vote(9)), (B, vote(4)), (C, vote(7))).reached(EQUAL) == 7
    assert votes((A, vote(9))).reached({A: 2, B: 1, C: 1}) == 9


def test_of_one_validator_the_votes_of_its_newest_rounds_are_kept() -> None:
    cast = votes(*((A, vote(round_)) for round_ in range(50)))
    assert sorted(cast.votes[A]) == list(range(50 - ROUNDS_KEPT, 50))
    assert not cast.add_vote(A, vote(1)), "an older one has no place"
    assert cast.votes_of(49) == [vote(49)]
    assert cast.votes_of(1) == []


def test_a_proposal_is_kept_for_the_round_and_some_ahead_and_the_first_one_stays() -> None:
    cast = EpochVotes(1)
    for round_ in (2, 3, 2 + ROUNDS_KEPT - 1):
        assert cast.add_proposal(SnapshotProposal(vote(round_), 1, ()), round_=2)
    for round_ in (1, 2 + ROUNDS_KEPT):
        assert not cast.add_proposal(SnapshotProposal(vote(round_), 1, ()), round_=2)
    assert not cast.add_proposal(SnapshotProposal(vote(3, root=2), 1, ()), round_=2)
    cast.forget_proposals(before=4)
    assert list(cast.proposals) == [2 + ROUNDS_KEPT - 1]


def test_the_weight_of_those_that_published_is_by_the_weights_given() -> None:
    cast = EpochVotes(1)
    for signer in (A, B):
        cast.observations[signer] = SignedObservations(Observations(1, 1, ()), bytes(65))
    assert cast.observed_by({A: 5, C: 7}) == 5
