"""What a validator signed stays with it over a crash."""

from __future__ import annotations

from sparewatt.market.snapshots.model import EPOCHS_KEPT, SnapshotEntry
from sparewatt.market.snapshots.own_words import OwnWords
from sparewatt.protocol.contracts.match import Observations, ReputationSnapshot


def observed(epoch: int) -> SnapshotEntry:
    return SnapshotEntry(Observations(epoch, 1, ()), bytes([epoch]) * 65)


def voted(epoch: int, round_: int) -> SnapshotEntry:
    return SnapshotEntry(ReputationSnapshot(epoch, round_, bytes(32), 0, bytes(32)), bytes([round_]) * 65)


def test_nothing_was_signed_in_an_epoch_that_was_not_seen() -> None:
    words = OwnWords([])
    assert (words.observations(1), words.vote(1), words.next_round(1)) == (None, None, 0)


def test_the_next_round_is_the_one_after_the_highest_that_was_signed_in_any_order() -> None:
    words = OwnWords([voted(1, 4), voted(1, 2), voted(2, 0)])
    assert (words.next_round(1), words.next_round(2)) == (5, 1)
    vote = words.vote(1)
    assert vote is not None
    assert (vote.snapshot.round, vote.signature) == (4, bytes([4]) * 65)


def test_observations_of_an_epoch_are_found_with_their_signature() -> None:
    signed = OwnWords([observed(3)]).observations(3)
    assert signed is not None
    assert (signed.observations.epoch, signed.signature) == (3, bytes([3]) * 65)


def test_only_the_newest_epochs_are_kept() -> None:
    words = OwnWords(entry for epoch in range(20) for entry in (observed(epoch), voted(epoch, 0)))
    kept = [epoch for epoch in range(20) if words.observations(epoch) and words.vote(epoch)]
    assert kept == list(range(20 - EPOCHS_KEPT, 20))
