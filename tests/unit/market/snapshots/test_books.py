"""A book is known by its hashes, whoever gives it."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.market.chain_records import SnapshotRecord
from sparewatt.market.snapshots.books import BOOKS_KEPT, KnownBooks, compute_book, is_book_of, snapshot_of
from sparewatt.market.snapshots.model import EPOCHS_KEPT, ChainFacts
from sparewatt.protocol.contracts.match import Observations
from sparewatt.protocol.contracts.snapshot_messages import SignedObservations, SnapshotBook
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import message_digest
from tests.unit.market.snapshots.snapshot_network import DOMAIN, KEYS, provider_facts, seen

FACTS = ChainFacts(
    height=8,
    unix_s=1_000,
    weights={key.address.lower(): 1 for key in KEYS[:4]},
    providers=(provider_facts(),),
)


def signed(key: SigningKey, *, epoch: int = 1, uptime_ppm: int = 990_000) -> SignedObservations:
    observations = Observations(epoch, 5, (seen(uptime_ppm=uptime_ppm),))
    return SignedObservations(observations, key.sign(message_digest(DOMAIN, observations)))


def a_book(*, epoch: int = 1, height: int = 8, uptime_ppm: int = 990_000) -> SnapshotBook:
    used = tuple(signed(key, epoch=epoch, uptime_ppm=uptime_ppm) for key in KEYS[:3])
    book = compute_book(replace(FACTS, height=height), used, domain=DOMAIN, epoch=epoch, previous=())
    assert book is not None
    return book


def posted(book: SnapshotBook) -> SnapshotRecord:
    snapshot = snapshot_of(book, round_=3)
    root, inputs_hash = "0x" + snapshot.root.hex(), "0x" + snapshot.inputs_hash.hex()
    return SnapshotRecord(snapshot.epoch, root, snapshot.count, inputs_hash, 1)


def test_a_book_needs_the_observations_of_a_quorum() -> None:
    used = tuple(signed(key) for key in KEYS[:2])
    assert compute_book(FACTS, used, domain=DOMAIN, epoch=1, previous=()) is None
    assert compute_book(FACTS, (*used, signed(KEYS[4])), domain=DOMAIN, epoch=1, previous=()) is None
    assert compute_book(FACTS, (*used, used[0]), domain=DOMAIN, epoch=1, previous=()) is None
    assert compute_book(FACTS, (*used, signed(KEYS[2])), domain=DOMAIN, epoch=1, previous=()) is not None


def test_the_hashes_cover_the_rows_the_block_and_the_observations_but_not_their_order() -> None:
    book = a_book()
    record = posted(book)
    assert is_book_of(book, record)
    assert is_book_of(replace(book, observations=book.observations[::-1]), record)
    assert not is_book_of(replace(book, observations=book.observations[:2]), record)
    assert not is_book_of(replace(book, table=replace(book.table, height=9)), record)
    assert not is_book_of(replace(book, table=replace(book.table, epoch=2)), record)
    assert not is_book_of(replace(book, table=replace(book.table, rows=())), record)
    assert not is_book_of(book, replace(record, count=2))


def test_the_book_that_was_posted_is_found_among_those_voted_for() -> None:
    first, second = a_book(height=8), a_book(height=9)
    known = KnownBooks([first, second])
    assert known.posted(posted(first)) is first
    assert known.posted(posted(second)) is second
    assert known.posted(posted(a_book(height=10))) is None
    assert known.posted(posted(a_book(epoch=2))) is None


def test_a_book_is_kept_once() -> None:
    known = KnownBooks([])
    assert known.add(a_book())
    assert not known.add(a_book())
    assert len(known) == 1


def test_only_the_newest_books_are_kept() -> None:
    known = KnownBooks([a_book(height=height) for height in range(BOOKS_KEPT + 3)])
    assert len(known) == BOOKS_KEPT
    for epoch in range(2, EPOCHS_KEPT + 4):
        known.add(a_book(epoch=epoch))
    assert len(known) == EPOCHS_KEPT
    assert known.posted(posted(a_book(epoch=2))) is None
    assert known.posted(posted(a_book(epoch=EPOCHS_KEPT + 3))) is not None
