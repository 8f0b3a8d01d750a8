"""Books of epochs: a table with the block and the observations that it was computed from, and its hashes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparewatt.market.chain_records import SnapshotRecord
from sparewatt.market.quorum import is_quorum
from sparewatt.market.rule import snapshot_tree
from sparewatt.market.snapshots.model import EPOCHS_KEPT, ChainFacts
from sparewatt.market.snapshots.observations import by_signer
from sparewatt.market.snapshots.table import table_of
from sparewatt.protocol.contracts.match import Profile, ReputationSnapshot, inputs_hash_of
from sparewatt.protocol.contracts.snapshot_messages import ProfileTable, SignedObservations, SnapshotBook
from sparewatt.protocol.signing import Domain

BOOKS_KEPT = 8
"""Of one epoch: those of the newest rounds that were voted for. One of them is posted."""


def compute_book(
    facts: ChainFacts,
    used: tuple[SignedObservations, ...],
    *,
    domain: Domain,
    epoch: int,
    previous: Sequence[Profile],
) -> SnapshotBook | None:
    """None unless the observations are of the epoch and of a quorum at the block, one of each validator."""
    published = by_signer(used, domain=domain, epoch=epoch, weights=facts.weights)
    if published is None:
        return None
    weight = sum(facts.weights[signer] for signer in published)
    if not is_quorum(weight, total=sum(facts.weights.values())):
        return None
    rows = table_of(facts, published, epoch=epoch, previous=previous)
    return SnapshotBook(ProfileTable(epoch, facts.height, rows), used)


def snapshot_of(book: SnapshotBook, *, round_: int) -> ReputationSnapshot:
    """What is signed for a book in a round."""
    _, tree = snapshot_tree(book.table.rows)
    inputs_hash = inputs_hash_of(book.table.height, [signed.observations for signed in book.observations])
    return ReputationSnapshot(book.table.epoch, round_, tree.root, tree.count, inputs_hash)


def is_book_of(book: SnapshotBook, posted: SnapshotRecord) -> bool:
    """Whether a book, whoever gave it, is the one whose hashes were posted."""
    found = snapshot_of(book, round_=0)
    expected = (posted.epoch, posted.count, _bytes(posted.root), _bytes(posted.inputs_hash))
    return (found.epoch, found.count, found.root, found.inputs_hash) == expected


class KnownBooks:
    """The newest books that this validator voted for or fetched."""

    def __init__(self, books: Iterable[SnapshotBook]) -> None:
        self._books: dict[int, list[SnapshotBook]] = {}
        for book in books:
            self.add(book)

    def __len__(self) -> int:
        return sum(map(len, self._books.values()))

    def add(self, book: SnapshotBook) -> bool:
        """Whether it is new."""
        same = self._books.setdefault(book.table.epoch, [])
        if book in same:
            return False
        same.append(book)
        del same[:-BOOKS_KEPT]
        for old in sorted(self._books)[:-EPOCHS_KEPT]:
            del self._books[old]
        return True

    def posted(self, record: SnapshotRecord) -> SnapshotBook | None:
        return next((book for book in self._books.get(record.epoch, ()) if is_book_of(book, record)), None)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])
