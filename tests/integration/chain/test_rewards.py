"""Era rewards on the real contracts: an era's root is posted to the pool of rewards, recomputed, claimed, bonded."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from sparewatt.chain.money.settlement_contract import SETTLEMENT, call_view, settlement_pool
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import NodeId
from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.credits import CreditRules, CreditService, deposit_transfer
from sparewatt.ledger.deposit_adapters import TEST_ADAPTER, ChainPaymentAdapter, ConfirmedDeposit
from sparewatt.ledger.eras import EraService, NoChainStanding
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.check_counts import CheckCount
from sparewatt.store.eras import EraRow
from sparewatt.store.history import HistoryCounts
from sparewatt.store.payouts import REWARD_POOL_ID
from sparewatt.testing.clocks import ManualClock
from sparewatt.trust.rewards.era import payments_of, reward_era
from sparewatt.trust.rewards.rule import read_inputs
from tests.integration.chain.settling import OWNER, USER, Settling, open_settling
from tests.integration.chain.stepped_chain import CUSTODY
from tests.integration.money.samples import delivery, job, settle

NODE = NodeId("0x" + "11" * 20)
ERA_S = 600


@pytest.fixture
async def settling(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Settling]:
    """Test money: the faucet covers the pool of rewards."""
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=True) as opened:
        await begin(opened)
        yield opened


async def begin(settling: Settling) -> None:
    """The owner has a node, the user ten dollars."""
    async with settling.database._pool.transaction() as connection:
        await connection.execute("INSERT INTO nodes (id, account_id) VALUES ($1, $2)", NODE, OWNER)
    deposit = ConfirmedDeposit("ten", Nano(10**10))
    transfer = deposit_transfer(USER, deposit, adapter=TEST_ADAPTER, unix_s=time.time())
    assert await settling.database.ledger.post_transfer(transfer)


async def close_era(settling: Settling, name: str) -> EraRow:
    """A node passes checks and is paid for work, and an era of that ends, by a clock of its own."""
    database, last = settling.database, await settling.database.eras.last()
    start = last.until if last is not None else int(time.time()) // ERA_S * ERA_S
    paid = job(name, delivery(OWNER, written=10**6), paid=50_000_000, account=USER, at=start + 1.0)
    await settle(database, paid)
    await database.history.add({("node", NODE): HistoryCounts(up_s=100.0, known_s=100.0)}, unix_s=start + 1.0)
    day = dt.datetime.fromtimestamp(start + 1, tz=dt.UTC).date()
    await database.check_counts.add([CheckCount(NODE, day, "probe", 50, 0, start + 1.0)])
    clock = ManualClock(now_s=0.0, unix_s=start + 1.5 * ERA_S)
    row = await EraService(database=database, chain=NoChainStanding(), clock=clock, era_s=ERA_S).close_due()
    assert row is not None
    assert row.given_micro > 0
    return row


async def is_ripe(settling: Settling, epoch: int) -> bool:
    batch = await settling.database.reward_payouts.find_batch(epoch)
    return batch is not None and batch.is_ripe


async def posted(settling: Settling, row: EraRow) -> None:
    """Until its root can be claimed by, however long the contract's delay is."""
    assert row.epoch is not None
    epoch = row.epoch

    async def has_root() -> bool:
        batch = await settling.database.reward_payouts.find_batch(epoch)
        return batch is not None and batch.posted_unix_s is not None

    await settling.until(has_root, "the root is not posted")
    delay_s = int(await call_view(settling.client, settling.contracts[SETTLEMENT], "ROOT_DELAY_S"))
    await settling.pass_time(delay_s + 1)
    await settling.until(lambda: is_ripe(settling, epoch), "the root is not ripe")


async def claimed(settling: Settling) -> Sequence[ChainRequestRow]:
    claiming = asyncio.create_task(ChainPaymentAdapter(settling.database, SystemClock()).claim(OWNER))

    async def is_done() -> bool:
        await asyncio.sleep(0.02)
        return claiming.done()

    await settling.until(is_done, "the claim has no end")
    return claiming.result()


async def balance(settling: Settling, name: str) -> int:
    return (await settling.database.ledger.balances([name]))[name]


async def test_an_eras_root_is_the_one_that_anyone_computes_and_its_claim_is_paid(settling: Settling) -> None:
    row = await close_era(settling, "one")
    await posted(settling, row)
    paid = payments_of(reward_era(read_inputs(row.inputs)))
    address = settling.addresses[OWNER]
    assert paid == {address: row.given_micro}
    root, _, __ = await call_view(settling.client, settling.contracts[SETTLEMENT], "root_at", REWARD_POOL_ID, row.epoch)
    assert bytes(root) == settlement_tree([PayoutEntry(address, row.given_micro, 0)]).root
    before = await settling.tokens_at(address)
    (request,) = await claimed(settling)
    assert request.state is ChainRequestState.DONE
    assert await settling.tokens_at(address) == before + row.given_micro

    async def is_booked() -> bool:
        return await balance(settling, chart.REWARD_PAYOUTS) == 0

    await settling.until(is_booked, "the claim is not in the books")
    assert await balance(settling, chart.pocket_of("wallet", OWNER)) == row.given_micro * 1_000
    assert await claimed(settling) == []
    pool = await settlement_pool(settling.client, settling.contracts[SETTLEMENT], REWARD_POOL_ID)
    assert (pool.promised, pool.paid) == (row.given_micro, row.given_micro)
    report = await settling.worker.auditor.compare(final_block=(await settling.client.head()).number)
    assert report.differences == []
    assert (await settling.database.ledger.audit()).is_clean


async def test_later_eras_add_to_what_was_promised(settling: Settling) -> None:
    first = await close_era(settling, "one")
    await posted(settling, first)
    await claimed(settling)
    second = await close_era(settling, "two")
    await posted(settling, second)
    (request,) = await claimed(settling)
    assert (request.state, request.micro) == (ChainRequestState.DONE, second.given_micro)


async def test_a_reward_becomes_the_bond_of_an_owner_without_tokens(settling: Settling) -> None:
    made = CUSTODY.make(OWNER, NODE)
    await settling.database.providers.ensure(NODE, account_id=OWNER, address=made.address, sealed=made.sealed)
    await settling.database.eras.set_to_bond(NODE, to_bond=True)
    row = await close_era(settling, "one")
    await posted(settling, row)
    (request,) = await claimed(settling)
    assert (request.state, request.address) == (ChainRequestState.DONE, made.address)
    free, *_ = await call_view(settling.client, settling.contracts["stake_registry"], "bond_of", made.address)
    assert free == row.given_micro

    async def is_booked() -> bool:
        return await balance(settling, chart.pocket_of("bond", OWNER)) == row.given_micro * 1_000

    await settling.until(is_booked, "the bond is not in the books")
    assert await settling.tokens_at(made.address) == 0
    assert await balance(settling, chart.REWARD_PAYOUTS) == 0
    assert (await settling.database.ledger.audit()).is_clean


async def test_where_money_is_real_a_root_waits_until_the_operator_funds_the_pool(
    anvil: Anvil, dsn: str, tmp_path: Path
) -> None:
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=False) as settling:
        await begin(settling)
        rules = CreditRules(signup=Nano(0), promo_days=1, grants_per_address_day=0, treasury_daily=Nano(0))
        service = CreditService(settling.database.ledger, rules=rules, clock=SystemClock())
        await service.fund_rewards(Nano(10**9), reference="promised")
        row = await close_era(settling, "one")
        for _ in range(6):
            await settling.round()
        batch = await settling.database.reward_payouts.find_batch(row.epoch or 0)
        assert batch is not None
        assert batch.posted_unix_s is None
        pool = await settlement_pool(settling.client, settling.contracts[SETTLEMENT], REWARD_POOL_ID)
        assert (pool.epoch, pool.promised) == (0, 0)
