"""What a validator has signed itself, by epoch: the part of its memory that must outlive a crash. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sparewatt.market.snapshots.model import EPOCHS_KEPT, SnapshotEntry
from sparewatt.protocol.contracts.match import Observations, ReputationSnapshot
from sparewatt.protocol.contracts.snapshot_messages import SignedObservations, SignedSnapshot


class OwnWords:
    """Observations once per epoch, and the vote of the highest round."""

    def __init__(self, stored: Iterable[SnapshotEntry]) -> None:
        self._observations: dict[int, SignedObservations] = {}
        self._votes: dict[int, SignedSnapshot] = {}
        for entry in stored:
            self.add(entry)

    def add(self, entry: SnapshotEntry) -> None:
        match entry.message:
            case Observations() as observations:
                self._observations[observations.epoch] = SignedObservations(observations, entry.signature)
                _keep_newest(self._observations)
            case ReputationSnapshot() as snapshot:
                if snapshot.round >= self.next_round(snapshot.epoch):
                    self._votes[snapshot.epoch] = SignedSnapshot(snapshot, entry.signature)
                    _keep_newest(self._votes)

    def observations(self, epoch: int) -> SignedObservations | None:
        return self._observations.get(epoch)

    def vote(self, epoch: int) -> SignedSnapshot | None:
        return self._votes.get(epoch)

    def next_round(self, epoch: int) -> int:
        """The first in which nothing was signed, nor in a later one."""
        vote = self._votes.get(epoch)
        return 0 if vote is None else vote.snapshot.round + 1


def _keep_newest(words: dict[int, SignedObservations] | dict[int, SignedSnapshot]) -> None:
    for old in sorted(words)[:-EPOCHS_KEPT]:
        del words[old]
