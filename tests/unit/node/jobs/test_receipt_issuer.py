"""The node's receipts: resent until a gateway countersigns them, then written to disk as pairs."""

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


def written_jobs(directory: Path, name: str = FILE) -> list[str]:
    """Jobs of the pairs in the file."""
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
def issuer(tmp_path: Path, sent: list[SignedReceipts], clock: ManualClock) -> ReceiptIssuer:
    issuer = ReceiptIssuer(tmp_path, NODE, clock=clock)
    issuer.on_link(sent.append, in_sheets=True)
    return issuer


def test_receipts_of_a_short_time_are_signed_as_one_sheet(
    issuer: ReceiptIssuer, sent: list[SignedReceipts], clock: ManualClock
) -> None:
    for n in range(3):
        issuer.issue(receipt(str(n)))
    assert sent == []
    clock.advance(SIGN_S)
    (signed,) = sent
    assert isinstance(signed, SignedSheet)
    assert jobs_of(sent) == ["match_0", "match_1", "match_2"]
    assert signed.is_signed_by(issuer.node, signed.digests())
    assert issuer.node == NODE.address
    clock.advance(10 * SIGN_S)
    assert (len(sent), clock.pending) == (1, 0)


def test_a_full_sheet_does_not_wait(issuer: ReceiptIssuer, sent: list[SignedReceipts], clock: ManualClock) -> None:
    for n in range(SHEET_MAX + 1):
        issuer.issue(receipt(str(n)))
    assert [len(signed.receipts) for signed in sent] == [SHEET_MAX]
    clock.advance(SIGN_S)
    assert [len(signed.receipts) for signed in sent] == [SHEET_MAX, 1]


def test_a_gateway_without_sheets_gets_single_receipts(
    issuer: ReceiptIssuer, sent: list[SignedReceipts], tmp_path: Path
) -> None:
    issuer.on_link(sent.append, in_sheets=False)
    for n in range(3):
        issuer.issue(receipt(str(n)))
    assert all(isinstance(signed, SignedReceipt) for signed in sent)
    assert all(signed.is_signed_by(NODE.address, signed.digests()) for signed in sent)
    digests = [receipt("1").typed_digest()]
    signature = GATEWAY.sign(countersign_digest(NODE.address, digests)).hex()
    issuer.on_countersigned(Countersignature(NODE.address, [digests[0].hex()], GATEWAY.address, signature))
    assert written_jobs(tmp_path) == ["match_1"]


def test_a_pair_proves_each_of_its_jobs(issuer: ReceiptIssuer, tmp_path: Path) -> None:
    for n in range(4):
        issuer.issue(receipt(str(n)))
        if n % 2:
            issuer.sign_pending()
    issuer.on_countersigned(countersigned(receipt("0"), receipt("2"), receipt("3")))
    (pair,) = pairs(tmp_path)
    assert len(pair.sheets) == 2
    for each in pair.receipts:
        assert any(ReceiptProof(each, seal).is_valid for seal in pair.sheets)
        assert each.digest().hex() in pair.countersigned.digests


def test_a_pair_is_written_once(issuer: ReceiptIssuer, tmp_path: Path) -> None:
    issuer.issue(receipt("1"))
    issuer.issue(receipt("2"))
    issuer.sign_pending()
    for _ in range(2):
        issuer.on_countersigned(countersigned(receipt("1"), receipt("2"), receipt("never written")))
    assert written_jobs(tmp_path) == ["match_1", "match_2"]


def test_what_is_not_confirmed_is_sent_again_on_the_next_link(
    issuer: ReceiptIssuer, sent: list[SignedReceipts]
) -> None:
    issuer.issue(receipt("1"))
    issuer.issue(receipt("2"))
    issuer.sign_pending()
    issuer.on_countersigned(countersigned(receipt("1")))
    issuer.on_link(None)
    issuer.issue(receipt("3"))
    issuer.sign_pending()
    assert jobs_of(sent) == ["match_1", "match_2"]
    sent.clear()
    issuer.on_link(sent.append, in_sheets=True)
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
def test_an_invalid_countersignature_is_not_written(
    issuer: ReceiptIssuer, sent: list[SignedReceipts], tmp_path: Path, message: Countersignature
) -> None:
    issuer.issue(receipt("1"))
    issuer.sign_pending()
    issuer.on_countersigned(message)
    assert written_jobs(tmp_path) == []
    issuer.on_link(sent.append, in_sheets=True)
    assert len(sent) == 2


def test_a_full_file_becomes_the_older_one(
    issuer: ReceiptIssuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_module, "FILE_BYTES_MAX", 2_000)
    for n in range(9):
        issuer.issue(receipt(str(n)))
        issuer.sign_pending()
        issuer.on_countersigned(countersigned(receipt(str(n))))
    assert all((tmp_path / name).stat().st_size <= 2_000 for name in (FILE, OLDER_FILE))
    jobs = written_jobs(tmp_path, OLDER_FILE) + written_jobs(tmp_path)
    assert jobs == [f"match_{n}" for n in range(9 - len(jobs), 9)]


@pytest.mark.parametrize("has_link", [True, False], ids=["sent", "without a link"])
def test_what_waits_is_bounded_and_the_oldest_goes(
    issuer: ReceiptIssuer,
    sent: list[SignedReceipts],
    monkeypatch: pytest.MonkeyPatch,
    has_link: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(receipts_module, "UNCONFIRMED_MAX", 3)
    if not has_link:
        issuer.on_link(None)
    for n in range(5):
        issuer.issue(receipt(str(n)))
    issuer.sign_pending()
    sent.clear()
    issuer.on_link(sent.append, in_sheets=True)
    assert jobs_of(sent) == ["match_2", "match_3", "match_4"]


def test_an_unwritable_disk_stops_no_job(issuer: ReceiptIssuer, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    issuer.issue(receipt("1"))
    issuer.sign_pending()
    issuer.on_countersigned(countersigned(receipt("1")))
    issuer.issue(receipt("2"))


def test_receipts_go_to_the_process_whose_jobs_they_are(issuer: ReceiptIssuer, sent: list[SignedReceipts]) -> None:
    other: list[SignedReceipts] = []
    issuer.for_link("8501").on_link(other.append, in_sheets=True)
    issuer.for_link("8501").issue(receipt("1"))
    issuer.for_link("8501").sign_pending()
    issuer.for_link("").issue(receipt("2"))
    issuer.for_link("").sign_pending()
    assert (jobs_of(other), jobs_of(sent)) == (["match_1"], ["match_2"])
    issuer.retain_links(["8502"])
    issuer.for_link("8501").on_link(other.append, in_sheets=True)
    assert jobs_of(other) == ["match_1"]  # a new one knows of nothing that the old one had not confirmed
