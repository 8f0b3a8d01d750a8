"""The node's receipts: kept until a gateway has signed for them, and kept with its word afterwards."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sparewatt.core.rng import seeded
from sparewatt.node.jobs import receipt_issuer as receipts_module
from sparewatt.node.jobs.receipt_issuer import FILE, OLDER_FILE, SIGN_S, ReceiptIssuer, ReceiptPair
from sparewatt.protocol.link.receipts import (
    SHEET_MAX,
    Countersignature,
    Receipt,
    ReceiptProof,
    SignedReceipt,
    SignedReceipts,
    SignedSheet,
    countersign_digest,
)
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock

NODE, GATEWAY, STRANGER = (SigningKey.generate(rng=seeded(n)) for n in range(3))


def receipt(name: str) -> Receipt:
    return Receipt(f"match_{name}", NODE.address, "stub", 1, 2, 3, 4)


def countersigned(*receipts: Receipt, key: SigningKey = GATEWAY, node: str = NODE.address) -> Countersignature:
    digests = [each.digest() for each in receipts]
    signature = key.sign(countersign_digest(node, digests)).hex()
    return Countersignature(node, [digest.hex() for digest in digests], GATEWAY.address, signature)


def pairs(directory: Path, name: str = FILE) -> list[ReceiptPair]:
    path = directory / name
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=ReceiptPair) for line in lines]


def kept(directory: Path, name: str = FILE) -> list[str]:
    """Jobs of the pairs that were kept."""
    return [receipt.job for pair in pairs(directory, name) for receipt in pair.receipts]


def jobs_of(sent: list[SignedReceipts]) -> list[str]:
    return [receipt.job for signed in sent for receipt in signed.receipts]


@pytest.fixture
def sent() -> list[SignedReceipts]:
    return []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def book(tmp_path: Path, sent: list[SignedReceipts], clock: ManualClock) -> ReceiptIssuer:
    book = ReceiptIssuer(tmp_path, NODE, clock=clock)
    book.on_link(sent.append, in_sheets=True)
    return book


def test_receipts_of_a_moment_are_signed_by_the_node_together(
    book: ReceiptIssuer, sent: list[SignedReceipts], clock: ManualClock
) -> None:
    for n in range(3):
        book.issue(receipt(str(n)))
    assert sent == []
    clock.advance(SIGN_S)
    (signed,) = sent
    assert isinstance(signed, SignedSheet)
    assert jobs_of(sent) == ["match_0", "match_1", "match_2"]
    assert signed.is_signed_by(book.node, signed.digests())
    assert book.node == NODE.address
    clock.advance(10 * SIGN_S)
    assert (len(sent), clock.pending) == (1, 0)


def test_a_full_sheet_does_not_wait(book: ReceiptIssuer, sent: list[SignedReceipts], clock: ManualClock) -> None:
    for n in range(SHEET_MAX + 1):
        book.issue(receipt(str(n)))
    assert [len(signed.receipts) for signed in sent] == [SHEET_MAX]
    clock.advance(SIGN_S)
    assert [len(signed.receipts) for signed in sent] == [SHEET_MAX, 1]


def test_a_gateway_that_knows_no_sheets_gets_one_by_one(
    book: ReceiptIssuer, sent: list[SignedReceipts], tmp_path: Path
) -> None:
    book.on_link(sent.append, in_sheets=False)
    for n in range(3):
        book.issue(receipt(str(n)))
    assert all(isinstance(signed, SignedReceipt) for signed in sent)
    assert all(signed.is_signed_by(NODE.address, signed.digests()) for signed in sent)
    digests = [receipt("1").typed_digest()]
    signature = GATEWAY.sign(countersign_digest(NODE.address, digests)).hex()
    book.on_countersigned(Countersignature(NODE.address, [digests[0].hex()], GATEWAY.address, signature))
    assert kept(tmp_path) == ["match_1"]


def test_a_pair_proves_each_of_its_jobs(book: ReceiptIssuer, tmp_path: Path) -> None:
    for n in range(4):
        book.issue(receipt(str(n)))
        if n % 2:
            book.sign_pending()
    book.on_countersigned(countersigned(receipt("0"), receipt("2"), receipt("3")))
    (pair,) = pairs(tmp_path)
    assert len(pair.sheets) == 2
    for each in pair.receipts:
        assert any(ReceiptProof(each, seal).is_valid for seal in pair.sheets)
        assert each.digest().hex() in pair.countersigned.digests


def test_a_pair_is_kept_once(book: ReceiptIssuer, tmp_path: Path) -> None:
    book.issue(receipt("1"))
    book.issue(receipt("2"))
    book.sign_pending()
    for _ in range(2):
        book.on_countersigned(countersigned(receipt("1"), receipt("2"), receipt("never written")))
    assert kept(tmp_path) == ["match_1", "match_2"]


def test_what_is_not_confirmed_is_sent_again_on_the_next_link(book: ReceiptIssuer, sent: list[SignedReceipts]) -> None:
    book.issue(receipt("1"))
    book.issue(receipt("2"))
    book.sign_pending()
    book.on_countersigned(countersigned(receipt("1")))
    book.on_link(None)
    book.issue(receipt("3"))
    book.sign_pending()
    assert jobs_of(sent) == ["match_1", "match_2"]
    sent.clear()
    book.on_link(sent.append, in_sheets=True)
    assert jobs_of(sent) == ["match_2", "match_3"]


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
    book: ReceiptIssuer, sent: list[SignedReceipts], tmp_path: Path, message: Countersignature
) -> None:
    book.issue(receipt("1"))
    book.sign_pending()
    book.on_countersigned(message)
    assert kept(tmp_path) == []
    book.on_link(sent.append, in_sheets=True)
    assert len(sent) == 2


def test_a_full_file_becomes_the_older_one(
    book: ReceiptIssuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_module, "FILE_BYTES_MAX", 2_000)
    for n in range(9):
        book.issue(receipt(str(n)))
        book.sign_pending()
        book.on_countersigned(countersigned(receipt(str(n))))
    assert all((tmp_path / name).stat().st_size <= 2_000 for name in (FILE, OLDER_FILE))
    jobs = kept(tmp_path, OLDER_FILE) + kept(tmp_path)
    assert jobs == [f"match_{n}" for n in range(9 - len(jobs), 9)]


@pytest.mark.parametrize("has_link", [True, False], ids=["sent", "without a link"])
def test_what_waits_is_bounded_and_the_oldest_goes(
    book: ReceiptIssuer,
    sent: list[SignedReceipts],
    monkeypatch: pytest.MonkeyPatch,
    has_link: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(receipts_module, "UNCONFIRMED_MAX", 3)
    if not has_link:
        book.on_link(None)
    for n in range(5):
        book.issue(receipt(str(n)))
    book.sign_pending()
    sent.clear()
    book.on_link(sent.append, in_sheets=True)
    assert jobs_of(sent) == ["match_2", "match_3", "match_4"]


def test_a_disk_that_takes_nothing_stops_no_answer(book: ReceiptIssuer, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    book.issue(receipt("1"))
    book.sign_pending()
    book.on_countersigned(countersigned(receipt("1")))
    book.issue(receipt("2"))


def test_receipts_go_to_the_process_whose_jobs_they_are(book: ReceiptIssuer, sent: list[SignedReceipts]) -> None:
    other: list[SignedReceipts] = []
    book.for_link("8501").on_link(other.append, in_sheets=True)
    book.for_link("8501").issue(receipt("1"))
    book.for_link("8501").sign_pending()
    book.for_link("").issue(receipt("2"))
    book.for_link("").sign_pending()
    assert (jobs_of(other), jobs_of(sent)) == (["match_1"], ["match_2"])
    book.retain_links(["8502"])
    book.for_link("8501").on_link(other.append, in_sheets=True)
    assert jobs_of(other) == ["match_1"]  # a new one knows of nothing that the old one had not confirmed
