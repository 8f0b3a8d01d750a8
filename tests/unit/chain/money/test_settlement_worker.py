"""Final events of payout roots, as they go into the books."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.chain.money.settlement_worker import PayoutEventHandler
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.payouts import CREDIT_POOL_ID, REWARD_POOL_ID, PayoutBatchRow, PayoutStore
from sparewatt.testing.clocks import ManualClock

ROOT = bytes(31) + b"\x07"


class NotedPayouts(PayoutStore):
    """Notes what is marked, and has one batch."""

    def __init__(self) -> None:
        self.marked: list[tuple[object, ...]] = []
        self.pool_id = CREDIT_POOL_ID

    async def find_batch(self, epoch: int) -> PayoutBatchRow | None:
        return PayoutBatchRow(1, 0.0, ROOT, 1, 5, 5) if epoch == 1 else None

    async def mark_posted(self, epoch: int, *, tx: str, unix_s: float, ripe_at: float) -> bool:
        del tx, unix_s
        self.marked.append(("posted", epoch, ripe_at))
        return True

    async def mark_struck(self, epoch: int) -> bool:
        self.marked.append(("struck", epoch))
        return True

    async def mark_claimed(self, address: str, *, claimed_micro: int) -> None:
        self.marked.append(("claimed", address, claimed_micro))


@pytest.fixture
def payouts() -> NotedPayouts:
    return NotedPayouts()


async def handle(payouts: NotedPayouts, name: str, **args: Any) -> None:
    event = ChainEvent(1, 0, b"", b"\x01", 0, "settlement", name, {"pool": 0, **args})
    await PayoutEventHandler(payouts, ManualClock()).handle(event)


async def test_a_root_of_ours_is_posted_and_ripe_when_the_chain_says(payouts: NotedPayouts) -> None:
    await handle(payouts, "RootPosted", epoch=1, root="0x" + ROOT.hex(), ripe_at=99)
    assert payouts.marked == [("posted", 1, 99)]


@pytest.mark.parametrize(("epoch", "root"), [(1, "0x" + "22" * 32), (2, "0x" + ROOT.hex())])
async def test_a_root_that_is_not_ours_marks_nothing(payouts: NotedPayouts, epoch: int, root: str) -> None:
    await handle(payouts, "RootPosted", epoch=epoch, root=root, ripe_at=99)
    assert payouts.marked == []


async def test_a_strike_and_a_claim_are_noted(payouts: NotedPayouts) -> None:
    await handle(payouts, "RootStruck", epoch=1)
    await handle(payouts, "Claimed", account="0xab", amount=2, earned=7, to_bond=False)
    assert payouts.marked == [("struck", 1), ("claimed", "0xab", 7)]


async def test_events_of_another_pool_mark_nothing(payouts: NotedPayouts) -> None:
    await handle(payouts, "RootPosted", pool=1, epoch=1, root="0x" + ROOT.hex(), ripe_at=99)
    await handle(payouts, "RootStruck", pool=1, epoch=1)
    assert payouts.marked == []
    payouts.pool_id = REWARD_POOL_ID
    await handle(payouts, "RootStruck", pool=1, epoch=1)
    assert payouts.marked == [("struck", 1)]
