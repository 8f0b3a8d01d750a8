"""Receipts at the gateway: each once, only its own, only for what was delivered, and never lost to a bad line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import NodeId
from sparewatt.core.rng import seeded
from sparewatt.inference.metering import receipt_intake as desk_module
from sparewatt.inference.metering.receipt_intake import RECEIPT_KEPT_S, RECEIPT_WAIT_S, SIGNED_AT_ONCE, ReceiptIntake
from sparewatt.protocol.link.receipts import (
    Countersignature,
    Receipt,
    ReceiptProof,
    SignedReceipt,
    SignedSheet,
    countersign_digest,
    sheet_digest,
)
from sparewatt.protocol.signing import SigningKey, recover_address
from sparewatt.testing.clocks import ManualClock
from tests.unit.ledger.memory_books import MemoryBooks
from tests.unit.ledger.samples import closed, delivery

NODE_KEY, OTHER_KEY, GATEWAY_KEY = (SigningKey.generate(rng=seeded(n)) for n in range(3))
NODE, OTHER = NodeId(NODE_KEY.address), NodeId(OTHER_KEY.address)


def signed(name: str = "1", written: int = 20, *, key: SigningKey = NODE_KEY, node: str = NODE) -> SignedReceipt:
    receipt = Receipt(f"match_{name}", node, "stub", 10, written, 5, 6)
    return SignedReceipt(receipt, key.sign(receipt.typed_digest()).hex())


def sheet(*names: str, written: int = 20, key: SigningKey = NODE_KEY, node: str = NODE) -> SignedSheet:
    receipts = [Receipt(f"match_{name}", node, "stub", 10, written, 5, 6) for name in names]
    return SignedSheet(receipts, key.sign(sheet_digest(node, [receipt.digest() for receipt in receipts])).hex())


class Desk:
    """A desk with its books, its clock, and what it told the nodes."""

    def __init__(self) -> None:
        self.books = MemoryBooks()
        self.clock = ManualClock()
        self.desk = ReceiptIntake(self.books, GATEWAY_KEY, clock=self.clock, send=self.hear)
        self.told: list[tuple[NodeId, Countersignature]] = []
        self.on_told: Callable[[], object] = lambda: None

    def hear(self, node_id: NodeId, message: Countersignature) -> None:
        self.told.append((node_id, message))
        self.on_told()

    def close(self, name: str = "1", **changes: Any) -> None:
        self.desk.expect(closed(name, delivery(10, 20, **({"node_id": NODE} | changes))))

    def kept(self) -> dict[tuple[str, str], bool]:
        return {which: row.disputed for which, row in self.books.receipts.items()}


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize("is_early", [False, True], ids=["after the job", "before the job is over"])
async def test_a_receipt_is_kept_and_countersigned(desk: Desk, is_early: bool) -> None:  # noqa: FBT001
    if is_early:
        desk.desk.on_receipt(NODE, signed())
        await desk.desk.settle()
        assert desk.told == []
        desk.close()
    else:
        desk.close()
        desk.desk.on_receipt(NODE, signed())
    await desk.desk.settle()
    assert desk.kept() == {("match_1", NODE): False}
    ((node_id, message),) = desk.told
    assert (node_id, message.node, message.gateway) == (NODE, NODE, GATEWAY_KEY.address)
    digest = signed().receipt.typed_digest()
    assert message.digests == [digest.hex()]
    signer = recover_address(countersign_digest(NODE, [digest]), bytes.fromhex(message.signature))
    assert signer == GATEWAY_KEY.address
    assert desk.desk.refused == 0


async def test_a_receipt_that_comes_again_is_countersigned_again_and_kept_once(desk: Desk) -> None:
    desk.close()
    for _ in range(3):
        desk.desk.on_receipt(NODE, signed())
    await desk.desk.settle()
    assert len(desk.told) == 1
    desk.desk.on_receipt(NODE, signed())
    await desk.desk.settle()
    assert [message.digests for _, message in desk.told] == [[signed().receipt.typed_digest().hex()]] * 2
    assert len(desk.books.receipts) == 1


async def test_a_second_receipt_that_says_something_else_is_refused(desk: Desk) -> None:
    desk.close()
    desk.desk.on_receipt(NODE, signed())
    desk.desk.on_receipt(NODE, signed(written=21))
    await desk.desk.settle()
    desk.desk.on_receipt(NODE, signed(written=22))
    desk.clock.advance(RECEIPT_WAIT_S + 1)
    await desk.desk.settle()
    assert desk.books.receipts["match_1", NODE].completion_tokens == 20
    assert (desk.desk.refused, len(desk.told)) == (2, 1)


@pytest.mark.parametrize(
    ("sender", "receipt"),
    [
        (OTHER, signed()),
        (NODE, signed(key=OTHER_KEY)),
        (NODE, SignedReceipt(signed().receipt, signed(written=21).signature)),
        (NODE, SignedReceipt(signed().receipt, "00" * 65)),
        (OTHER, signed(key=OTHER_KEY, node=OTHER)),
        (NODE, signed("another")),
    ],
    ids=["of another node", "forged", "of another text", "no signature", "for another's work", "for no job"],
)
async def test_a_receipt_that_is_not_ones_own_for_ones_own_work_is_refused(
    desk: Desk, sender: NodeId, receipt: SignedReceipt
) -> None:
    desk.close()
    desk.desk.on_receipt(sender, receipt)
    desk.clock.advance(RECEIPT_WAIT_S + 1)
    await desk.desk.settle()
    assert (desk.kept(), desk.told, desk.desk.refused) == ({}, [], 1)


@pytest.mark.parametrize(("written", "is_dispute"), [(20, False), (0, False), (30, False), (31, True), (10**6, True)])
async def test_a_claim_beyond_what_was_seen_is_kept_as_disputed(
    desk: Desk,
    written: int,
    is_dispute: bool,  # noqa: FBT001
) -> None:
    desk.close()
    desk.desk.on_receipt(NODE, signed(written=written))
    await desk.desk.settle()
    assert desk.kept() == {("match_1", NODE): is_dispute}


async def test_a_node_whose_client_went_away_may_have_written_on(desk: Desk) -> None:
    desk.close(outcome="cancelled")
    desk.desk.on_receipt(NODE, signed(written=500))
    await desk.desk.settle()
    assert desk.kept() == {("match_1", NODE): False}


@pytest.mark.parametrize("fault", ["is_away", "loses_replies"])
async def test_receipts_wait_for_books_that_are_away(desk: Desk, fault: str) -> None:
    desk.close()
    desk.desk.on_receipt(NODE, signed())
    setattr(desk.books, fault, True)
    with pytest.raises(StoreUnavailable):
        await desk.desk.settle()
    assert desk.told == []
    desk.desk.on_receipt(NODE, signed())
    desk.books.is_away = False
    await desk.desk.settle()
    assert desk.kept() == {("match_1", NODE): False}
    assert len(desk.told) == 1


async def test_one_node_cannot_crowd_out_another(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "RECEIPTS_PER_NODE_MAX", 3)
    junk = signed()
    for n in range(9):
        desk.desk.on_receipt(NODE, SignedReceipt(Receipt(f"junk_{n}", NODE, "stub", 1, 1, 1, 1), junk.signature))
    assert desk.desk.refused == 6
    desk.desk.on_receipt(OTHER, signed(key=OTHER_KEY, node=OTHER))
    desk.close(node_id=OTHER)
    await desk.desk.settle()
    assert desk.kept() == {("match_1", OTHER): False}
    desk.clock.advance(RECEIPT_WAIT_S + 1)
    await desk.desk.settle()
    assert not desk.desk._early_of
    desk.desk.on_receipt(NODE, signed("2"))
    assert len(desk.desk._early) == 1


async def test_everything_it_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "RECEIPTS_WAITING_MAX", 5)
    desk = Desk()
    for n in range(20):
        desk.close(str(n))
        desk.close(f"silent_{n}")
        desk.desk.on_receipt(NODE, signed(str(n)))
        desk.desk.on_receipt(NODE, signed(f"unknown_{n}"))
    for memory in (desk.desk._early, desk.desk._taken, desk.desk._ready):
        assert len(memory) == 5
    await desk.desk.settle()
    assert len(desk.kept()) == 5
    assert len(desk.desk._seen) <= 6
    assert len(desk.desk._kept) <= 6
    assert not desk.desk._taken


async def test_what_nobody_asks_for_again_is_forgotten_after_a_while(desk: Desk) -> None:
    """Deliveries of nodes that never send a receipt, and receipts that were countersigned."""
    desk.close()
    desk.close("silent")
    desk.desk.on_receipt(NODE, signed())
    await desk.desk.settle()
    desk.clock.advance(RECEIPT_KEPT_S - 1)
    await desk.desk.settle()
    assert (len(desk.desk._seen), len(desk.desk._kept)) == (1, 1)
    desk.clock.advance(RECEIPT_KEPT_S + 2)
    await desk.desk.settle()
    assert (len(desk.desk._seen), len(desk.desk._kept)) == (0, 0)


async def test_many_receipts_are_checked_in_rounds_and_confirmed_in_batches(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "BATCH_MAX", 4)
    for n in range(10):
        desk.close(str(n))
        desk.desk.on_receipt(NODE, signed(str(n)))
    for _ in range(3):
        await desk.desk.settle()
    assert [len(message.digests) for _, message in desk.told] == [4, 4, 2]
    assert len(desk.kept()) == 10


# sheets


async def test_the_lines_of_a_sheet_are_kept_one_by_one_and_confirmed_together(desk: Desk) -> None:
    for name in "1234":
        desk.close(name)
    whole = sheet("1", "2", "none", "3")
    desk.desk.on_receipt(NODE, whole)
    await desk.desk.settle()
    assert sorted(job for job, _ in desk.kept()) == ["match_1", "match_2", "match_3"]
    ((_, message),) = desk.told
    assert message.digests == [whole.receipts[at].digest().hex() for at in (0, 1, 3)]


async def test_the_same_lines_under_another_signature_are_confirmed_again_and_kept_once(desk: Desk) -> None:
    for name in "12":
        desk.close(name)
    desk.desk.on_receipt(NODE, sheet("1", "2"))
    await desk.desk.settle()
    desk.desk.on_receipt(NODE, sheet("2", "1"))
    desk.desk.on_receipt(NODE, sheet("1", "2", written=21))
    desk.clock.advance(RECEIPT_WAIT_S + 1)
    await desk.desk.settle()
    assert [sorted(message.digests) for _, message in desk.told] == [sorted(desk.told[0][1].digests)] * 2
    assert (len(desk.books.receipts), desk.desk.refused) == (2, 2)


@pytest.mark.parametrize(
    "forged",
    [
        sheet("1", "2", key=OTHER_KEY),
        SignedSheet(sheet("1", "2", written=21).receipts, sheet("1", "2").signature),
        SignedSheet(sheet("1", "2").receipts[::-1], sheet("1", "2").signature),
        SignedSheet(sheet("1", "2").receipts, signed().signature),
    ],
    ids=["another key", "other counts", "another order", "a signature of one"],
)
async def test_no_line_of_a_sheet_that_is_not_signed_right_is_kept(desk: Desk, forged: SignedSheet) -> None:
    for name in "12":
        desk.close(name)
    desk.desk.on_receipt(NODE, forged)
    await desk.desk.settle()
    assert (desk.kept(), desk.told, desk.desk.refused) == ({}, [], 2)


async def test_lines_that_name_another_node_are_refused_alone(desk: Desk) -> None:
    for name in "12":
        desk.close(name)
    lines = [*sheet("1").receipts, *sheet("2", node=OTHER).receipts]
    whole = SignedSheet(lines, NODE_KEY.sign(sheet_digest(NODE, [line.digest() for line in lines])).hex())
    desk.desk.on_receipt(NODE, whole)
    await desk.desk.settle()
    assert (desk.kept(), desk.desk.refused) == ({("match_1", NODE): False}, 1)


async def test_of_a_disputed_receipt_its_whole_proof_is_kept(desk: Desk) -> None:
    for name in "12":
        desk.close(name)
    desk.desk.on_receipt(NODE, sheet("1", "2", written=500))
    await desk.desk.settle()
    for row in desk.books.receipts.values():
        assert row.proof is not None
        proof = msgspec.json.decode(row.proof, type=ReceiptProof)
        assert proof.is_valid
        assert (proof.receipt.job, proof.receipt.completion_tokens) == (row.job_id, 500)


async def test_a_receipt_that_is_in_order_needs_no_proof(desk: Desk) -> None:
    desk.close()
    desk.desk.on_receipt(NODE, sheet("1"))
    await desk.desk.settle()
    assert [row.proof for row in desk.books.receipts.values()] == [None]


def hand_in(desk: Desk, keys: list[SigningKey]) -> None:
    for number, key in enumerate(keys):
        node = NodeId(key.address)
        desk.close(f"many-{number}", node_id=node)
        desk.desk.on_receipt(node, signed(f"many-{number}", key=key, node=node))


async def test_others_get_their_turn_between_the_countersignatures_of_many_nodes(desk: Desk) -> None:
    keys = [SigningKey.generate(rng=seeded(100 + number)) for number in range(3 * SIGNED_AT_ONCE)]
    hand_in(desk, keys)
    settling = asyncio.ensure_future(desk.desk.settle())
    told, seen = [0], [0]
    while not settling.done():
        await asyncio.sleep(0)
        told.append(len(desk.told) - seen[-1])
        seen.append(len(desk.told))
    assert max(told) == SIGNED_AT_ONCE
    assert {node for node, _ in desk.told} == {key.address for key in keys}


async def test_a_desk_that_was_stopped_half_way_tells_the_others_the_next_time(desk: Desk) -> None:
    keys = [SigningKey.generate(rng=seeded(200 + number)) for number in range(2 * SIGNED_AT_ONCE)]
    hand_in(desk, keys)
    settling = asyncio.ensure_future(desk.desk.settle())

    desk.on_told = settling.cancel
    with suppress(asyncio.CancelledError):
        await settling
    assert len(desk.told) == SIGNED_AT_ONCE
    desk.on_told = lambda: None
    await desk.desk.settle()
    assert sorted(node for node, _ in desk.told) == sorted(key.address for key in keys), "each once"
