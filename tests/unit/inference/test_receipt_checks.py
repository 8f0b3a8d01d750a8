"""Which receipts have their signature checked: all that claim too much, a share of the others, all of a cheat's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.inference.metering.receipts import ReceiptDesk
from sparewatt.ledger.model import Amount, ClosedJob, Delivery, JobState, OpenedJob, TokenPrice
from sparewatt.protocol.receipts import Receipt, SignedReceipt
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.books import Books, ReceiptRow
from sparewatt.testing import ManualClock

NODE = SigningKey.generate(rng=seeded(1))
OTHER = SigningKey.generate(rng=seeded(2))
SEEN_TOKENS = 10


class KeptReceipts:
    """Books that keep receipts and nothing else."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    async def save_receipts(self, receipts: Sequence[ReceiptRow]) -> None:
        self.jobs += [receipt.job_id for receipt in receipts]


def receipt(job: str, *, tokens: int = SEEN_TOKENS, signer: SigningKey = NODE) -> SignedReceipt:
    said = Receipt(
        job=job,
        node=NODE.address,
        model="m",
        prompt_tokens=5,
        completion_tokens=tokens,
        first_token_ms=1,
        duration_ms=2,
    )
    return SignedReceipt(said, signer.sign(said.digest()).hex())


def closed(job: str) -> ClosedJob:
    opened = OpenedJob(MatchId(job), AccountId("acc_a"), KeyId("key_a"), ModelId("m"), 1.0, Amount(paid=Nano(1000)))
    price = TokenPrice(Nano(1), Nano(1))
    delivery = Delivery(NodeId(NODE.address), AccountId("acc_b"), price, 5, SEEN_TOKENS, SEEN_TOKENS, "done")
    return ClosedJob(opened, JobState.DONE, 2.0, (delivery,))


async def hand_in(receipts: Sequence[SignedReceipt], *, checks: bool) -> tuple[list[str], int]:
    """One after the other, with chance always or never in favour of a check: what was kept, how many were refused."""
    books = KeptReceipts()
    desk = ReceiptDesk(cast("Books", books), OTHER, clock=ManualClock(), spot_check=lambda: checks)
    for signed in receipts:
        desk.expect(closed(signed.receipt.job))
        desk.on_receipt(NodeId(NODE.address), signed)
        await desk.settle()
    return books.jobs, desk.refused


async def test_a_receipt_that_claims_more_than_was_seen_is_always_checked() -> None:
    dear = [receipt("1", tokens=1000, signer=OTHER), receipt("2", tokens=1000)]
    assert await hand_in(dear, checks=False) == (["2"], 1)


async def test_a_modest_receipt_is_checked_when_chance_says_so() -> None:
    assert await hand_in([receipt("1", signer=OTHER)], checks=True) == ([], 1)
    assert await hand_in([receipt("1", signer=OTHER)], checks=False) == (["1"], 0)


async def test_a_node_that_was_caught_once_is_checked_from_then_on() -> None:
    caught = [receipt("1", tokens=1000, signer=OTHER), receipt("2", signer=OTHER), receipt("3")]
    assert await hand_in(caught, checks=False) == (["3"], 2)
