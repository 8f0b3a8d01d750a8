"""Payout batches in a real Postgres: the books and the leaves say the same, and nothing is paid twice."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.deposit_adapters import TEST_ADAPTER, ConfirmedDeposit
from sparewatt.ledger.payouts import PayoutService, payout_tree
from sparewatt.store.database import Database
from sparewatt.testing.clocks import ManualClock
from tests.integration.money.samples import ANN, BEN, DOLLAR, HER, HIS, OLE, RULES, delivery, job, make_people, settle


@pytest.fixture
async def settlement(database: Database, clock: ManualClock) -> PayoutService:
    await make_people(database)
    await CreditService(database.ledger, rules=RULES, clock=clock).deposit(
        ANN, ConfirmedDeposit("one", DOLLAR), adapter=TEST_ADAPTER
    )
    return PayoutService(database.payouts, clock=clock)


async def earned(database: Database, name: str) -> int:
    return (await database.ledger.balances([name]))[name]


async def test_a_batch_holds_what_was_earned_and_spent_and_the_books_agree(
    database: Database, settlement: PayoutService
) -> None:
    await settle(database, job("1", delivery(BEN), paid=100_000), job("2", delivery(OLE), paid=100_000))
    batch = await settlement.make_batch()
    assert batch is not None
    leaves = await database.payouts.leaves_at(1)
    # each job costs 10,000 nano-dollars, of which 500 are the fee; Ole has no address yet
    assert [(leaf.address, leaf.earned_micro, leaf.spent_micro) for leaf in leaves] == [(HER, 0, 20), (HIS, 9, 0)]
    assert batch.root == payout_tree(leaves).root
    assert (batch.leaves, batch.promised_micro, batch.added_micro) == (2, 9, 9)
    assert await earned(database, chart.earned_by(BEN)) == 500  # below a micro-dollar: carried
    assert await earned(database, chart.earned_by(OLE)) == 9_500
    assert await earned(database, chart.PAYOUTS) == 9_000
    assert (await database.ledger.audit()).is_clean


async def test_the_remainder_comes_with_a_later_batch(database: Database, settlement: PayoutService) -> None:
    await settle(database, job("1", delivery(BEN), paid=100_000))
    await settlement.make_batch()
    assert await settlement.make_batch() is None
    await settle(database, job("2", delivery(BEN), paid=100_000))
    batch = await settlement.make_batch()
    assert batch is not None
    assert (batch.epoch, batch.added_micro, batch.promised_micro) == (2, 10, 19)
    assert await earned(database, chart.earned_by(BEN)) == 0
    assert [row.added_micro for row in await database.payouts.list_payouts(BEN, before=None, limit=10)] == [10, 9]
    assert await database.payouts.payout_totals(BEN) == (19, 0, 0)


async def test_old_batches_can_still_be_recomputed(database: Database, settlement: PayoutService) -> None:
    roots = []
    for number in range(3):
        await settle(database, job(str(number), delivery(BEN), paid=100_000))
        batch = await settlement.make_batch()
        assert batch is not None
        roots.append(batch.root)
    assert [payout_tree(await database.payouts.leaves_at(epoch)).root for epoch in (1, 2, 3)] == roots
    assert len(set(roots)) == 3


async def test_gateways_that_settle_at_once_make_one_batch(
    database: Database, settlement: PayoutService, clock: ManualClock
) -> None:
    await settle(database, job("1", delivery(BEN), paid=100_000))
    others = [PayoutService(database.payouts, clock=clock) for _ in range(4)]
    made = await asyncio.gather(*(each.make_batch() for each in others))
    assert len([batch for batch in made if batch is not None]) == 1
    assert await earned(database, chart.PAYOUTS) == 9_000


async def test_a_batch_waits_for_its_time(database: Database, settlement: PayoutService, clock: ManualClock) -> None:
    await settle(database, job("1", delivery(BEN), paid=100_000))
    assert await settlement.make_batch(quiet_s=3600) is not None
    await settle(database, job("2", delivery(BEN), paid=100_000))
    assert await settlement.make_batch(quiet_s=3600) is None
    clock.advance(3600)
    assert await settlement.make_batch(quiet_s=3600) is not None


async def test_the_database_itself_refuses_a_lower_amount(database: Database, settlement: PayoutService) -> None:
    await settle(database, job("1", delivery(BEN), paid=100_000))
    await settlement.make_batch()
    async with database.ledger._pool._pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO payout_batches SELECT 2, at, root, leaves, promised_micro, 0 FROM payout_batches"
        )
        with pytest.raises(asyncpg.RaiseError, match="lowered"):
            await connection.execute("INSERT INTO payout_leaves VALUES ($1, 2, 'acc_ben', 8, 0, 0)", HIS)


async def test_batches_are_marked_once_and_claims_never_fall(
    database: Database, settlement: PayoutService, clock: ManualClock
) -> None:
    await settle(database, job("1", delivery(BEN), paid=100_000))
    await settlement.make_batch()
    assert await database.payouts.mark_posted(1, tx="0xabc", unix_s=clock.unix_s(), ripe_at=0.0)
    assert not await database.payouts.mark_posted(1, tx="0xdef", unix_s=clock.unix_s(), ripe_at=0.0)
    assert not await database.payouts.mark_posted(7, tx="0xdef", unix_s=clock.unix_s(), ripe_at=0.0)
    for claimed in (9, 4):
        await database.payouts.mark_claimed(HIS, claimed_micro=claimed)
    assert await database.payouts.payout_totals(BEN) == (0, 9, 9)
    (row,) = await database.payouts.list_payouts(BEN, before=None, limit=10)
    assert row.claimed
    assert row.posted_unix_s == clock.unix_s()


async def test_an_address_proves_its_part(database: Database, settlement: PayoutService) -> None:
    await settle(database, job("1", delivery(BEN), paid=100_000))
    await settlement.make_batch()
    proof = await settlement.proof(1, HIS)
    assert proof is not None
    assert (proof.index, proof.leaf.earned_micro) == (1, 9)
    assert await settlement.proof(1, "0x" + "9" * 40) is None


async def test_redeemed_promo_income_is_paid_like_any_other(
    database: Database, settlement: PayoutService, clock: ManualClock
) -> None:
    till = CreditService(database.ledger, rules=RULES, clock=clock)
    await till.grant(ANN, DOLLAR, reference="ann")
    await settle(database, job("1", delivery(BEN), promo=100_000))
    assert await settlement.make_batch() is None  # promo income is not payable
    await till.fund_treasury(Nano(10**9), reference="one")
    assert await till.redeem() == 9_500
    batch = await settlement.make_batch()
    assert batch is not None
    assert batch.added_micro == 9
