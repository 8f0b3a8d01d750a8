"""The node's receipts: kept until a gateway has signed for them, and kept with its word afterwards."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sparewatt.core.rng import seeded
from sparewatt.node import receipts as receipts_module
from sparewatt.node.receipts import FILE, OLDER_FILE, ReceiptBook
from sparewatt.protocol.receipts import Countersigned, Receipt, SignedReceipt, countersign_digest
from sparewatt.protocol.signing import SigningKey, recover_address

NODE, GATEWAY, STRANGER = (SigningKey.generate(rng=seeded(n)) for n in range(3))


class Pair(msgspec.Struct):
    receipts: list[SignedReceipt]
    countersigned: Countersigned


def receipt(name: str) -> Receipt:
    return Receipt(f"match_{name}", NODE.address, "stub", 1, 2, 3, 4)


def countersigned(*receipts: Receipt, key: SigningKey = GATEWAY, node: str = NODE.address) -> Countersigned:
    digests = [each.digest() for each in receipts]
    signature = key.sign(countersign_digest(node, digests)).hex()
    return Countersigned(node, [digest.hex() for digest in digests], GATEWAY.address, signature)


def kept(directory: Path, name: str = FILE) -> list[str]:
    """Jobs of the pairs that were kept."""
    path = directory / name
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [signed.receipt.job for line in lines for signed in msgspec.json.decode(line, type=Pair).receipts]


@pytest.fixture
def sent() -> list[SignedReceipt]:
    return []


@pytest.fixture
def book(tmp_path: Path, sent: list[SignedReceipt]) -> ReceiptBook:
    book = ReceiptBook(tmp_path, NODE)
    book.on_link(sent.append)
    return book


def test_a_receipt_is_signed_by_the_node_and_sent(book: ReceiptBook, sent: list[SignedReceipt]) -> None:
    book.write(receipt("1"))
    (signed,) = sent
    assert recover_address(signed.receipt.digest(), bytes.fromhex(signed.signature)) == book.node == NODE.address


def test_a_pair_is_kept_once(book: ReceiptBook, tmp_path: Path) -> None:
    book.write(receipt("1"))
    book.write(receipt("2"))
    for _ in range(2):
        book.on_countersigned(countersigned(receipt("1"), receipt("2"), receipt("never written")))
    assert kept(tmp_path) == ["match_1", "match_2"]


def test_what_is_not_confirmed_is_sent_again_on_the_next_link(book: ReceiptBook, sent: list[SignedReceipt]) -> None:
    book.write(receipt("1"))
    book.write(receipt("2"))
    book.on_countersigned(countersigned(receipt("1")))
    book.on_link(None)
    book.write(receipt("3"))
    assert len(sent) == 2
    sent.clear()
    book.on_link(sent.append)
    assert [signed.receipt.job for signed in sent] == ["match_2", "match_3"]


@pytest.mark.parametrize(
    "message",
    [
        countersigned(receipt("1"), key=STRANGER),
        countersigned(receipt("1"), node=STRANGER.address),
        msgspec.structs.replace(countersigned(receipt("1")), node=STRANGER.address),
        msgspec.structs.replace(countersigned(receipt("1")), signature="00" * 65),
        msgspec.structs.replace(countersigned(receipt("2")), digests=[receipt("1").digest().hex()]),
    ],
    ids=["another key", "another node", "renamed node", "no signature", "other receipts"],
)
def test_a_countersignature_that_does_not_hold_is_not_kept(
    book: ReceiptBook, sent: list[SignedReceipt], tmp_path: Path, message: Countersigned
) -> None:
    book.write(receipt("1"))
    book.on_countersigned(message)
    assert kept(tmp_path) == []
    book.on_link(sent.append)
    assert len(sent) == 2


def test_a_full_file_becomes_the_older_one(book: ReceiptBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts_module, "FILE_BYTES_MAX", 2_000)
    for n in range(9):
        book.write(receipt(str(n)))
        book.on_countersigned(countersigned(receipt(str(n))))
    assert all((tmp_path / name).stat().st_size <= 2_000 for name in (FILE, OLDER_FILE))
    jobs = kept(tmp_path, OLDER_FILE) + kept(tmp_path)
    assert jobs == [f"match_{n}" for n in range(9 - len(jobs), 9)]


def test_what_waits_is_bounded_and_the_oldest_goes(
    book: ReceiptBook, sent: list[SignedReceipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_module, "UNCONFIRMED_MAX", 3)
    for n in range(5):
        book.write(receipt(str(n)))
    sent.clear()
    book.on_link(sent.append)
    assert [signed.receipt.job for signed in sent] == ["match_2", "match_3", "match_4"]


def test_a_disk_that_takes_nothing_stops_no_answer(book: ReceiptBook, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    book.write(receipt("1"))
    book.on_countersigned(countersigned(receipt("1")))
    book.write(receipt("2"))
