"""Credits in and earnings out, on the real contracts: each once, within the funds, and never before it is final."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainUnavailable, InvalidField, UnprocessableContent
from sparewatt.core.money import Nano
from sparewatt.ledger.credits import deposit_transfer
from sparewatt.ledger.deposit_adapters import ChainPaymentAdapter, ConfirmedDeposit, deposit_request
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.database import Database
from sparewatt.store.ledger import Transfer
from sparewatt.store.payouts import PayoutBatchRow
from tests.integration.chain.settling import OWNER, USER, Settling, open_settling
from tests.integration.money.samples import delivery, job, settle

WALLET = SigningKey(bytes(31) + b"\x77")
DOLLAR_MICRO, DOLLAR = 1_000_000, Nano(10**9)


@pytest.fixture
async def settling(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Settling]:
    """Money that is worth something: no faucet helps."""
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=False) as opened:
        yield opened


@pytest.fixture
async def playing(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Settling]:
    """Test money."""
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=True) as opened:
        yield opened


async def deposited(settling: Settling, nano: Nano, *, reference: str = "r") -> ConfirmedDeposit:
    """As a gateway asks for it, while the chain's process works."""
    asking = asyncio.create_task(
        ChainPaymentAdapter(settling.database, SystemClock()).confirm(USER, reference=reference, nano=nano)
    )

    async def is_done() -> bool:
        await asyncio.sleep(0.02)
        return asking.done()

    await settling.until(is_done, "the deposit has no end")
    return asking.result()


async def earn(settling: Settling, name: str, *, written: int) -> PayoutBatchRow:
    """The user has an answer written, for 40 nano-USD a token, and it goes into a batch."""
    paid = job(name, delivery(OWNER, prompt=0, written=written), paid=40 * written, account=USER, at=time.time())
    await settle(settling.database, paid)
    batch = await settling.payouts.make_batch()
    assert batch is not None
    return batch


async def is_posted(settling: Settling, epoch: int) -> bool:
    batch = await settling.database.payouts.find_batch(epoch)
    return batch is not None and batch.posted_unix_s is not None


# deposits


async def test_a_deposit_by_wallet_is_credited_once_it_is_final_and_not_before(settling: Settling) -> None:
    await settling.deposit_by_wallet(settling.addresses[USER], 5 * DOLLAR_MICRO, WALLET)
    await settling.follower.catch_up()
    await settling.worker.step()
    assert await settling.credits_of(USER) == 0

    async def is_credited() -> bool:
        return await settling.credits_of(USER) > 0

    await settling.until(is_credited, "the deposit is not in the books")
    assert await settling.credits_of(USER) == 5 * DOLLAR
    assert (await settling.pool()).funded == 5 * DOLLAR_MICRO


async def test_a_deposit_that_is_delivered_again_changes_nothing(settling: Settling) -> None:
    await settling.deposit_by_wallet(settling.addresses[USER], 5 * DOLLAR_MICRO, WALLET)
    for _ in range(4):
        await settling.round()
    await settling.follower.begin(rebuild=True)
    await settling.database.chain.move_reader(
        "deposits", seen=await settling.database.chain.reader_position("deposits", start_block=1), to=(0, 0)
    )
    for _ in range(4):
        await settling.round()
    assert await settling.credits_of(USER) == 5 * DOLLAR


async def test_a_deposit_that_the_chain_takes_back_is_never_credited(settling: Settling) -> None:
    await settling.deposit_by_wallet(settling.addresses[USER], 5 * DOLLAR_MICRO, WALLET)
    await settling.follower.catch_up()
    await settling.worker.step()
    await settling.client.request("anvil_rollback", 1)
    for _ in range(4):
        await settling.round()
    assert await settling.credits_of(USER) == 0
    assert (await settling.pool()).funded == 0


async def test_a_deposit_for_an_unknown_address_is_nobodys_and_holds_up_no_other(settling: Settling) -> None:
    await settling.deposit_by_wallet("0x" + "99" * 20, 7 * DOLLAR_MICRO, WALLET)
    await settling.deposit_by_wallet(settling.addresses[USER], 5 * DOLLAR_MICRO, WALLET)
    for _ in range(4):
        await settling.round()
    assert (await settling.credits_of(USER), await settling.credits_of(OWNER)) == (5 * DOLLAR, 0)


async def test_an_account_deposits_out_of_its_address_with_its_own_key(settling: Settling) -> None:
    address = settling.addresses[USER]
    await settling.send(settling.contracts["token"].encode_call("faucet", address, 3 * DOLLAR_MICRO), WALLET)
    arrival = await deposited(settling, Nano(2 * DOLLAR))
    assert (arrival.nano, arrival.posted) == (2 * DOLLAR, True)
    assert await settling.credits_of(USER) == 2 * DOLLAR
    assert await settling.tokens_at(address) == DOLLAR_MICRO
    assert await settling.client.next_nonce(address) == 0  # it needs no gas


async def test_a_deposit_that_is_asked_for_twice_is_made_once(playing: Settling) -> None:
    first, again = await deposited(playing, DOLLAR), await deposited(playing, DOLLAR)
    assert (first.posted, again.posted) == (True, False)
    assert await playing.credits_of(USER) == DOLLAR
    with pytest.raises(InvalidField, match="another amount"):
        await deposited(playing, Nano(2 * DOLLAR))


async def test_two_deposits_of_an_account_at_once_are_made_one_after_the_other(playing: Settling) -> None:
    for name in ("a", "b"):
        address = playing.addresses[USER]
        await playing.database.chain_requests.insert(
            deposit_request(USER, address=address, reference=name, nano=Nano(DOLLAR))
        )

    async def are_both() -> bool:
        return await playing.credits_of(USER) == 2 * DOLLAR

    await playing.until(are_both, "not both are in the books")


async def test_a_deposit_without_the_money_fails_and_says_what_is_missing(settling: Settling) -> None:
    with pytest.raises(UnprocessableContent, match=r"lacks \$1 of the token"):
        await deposited(settling, DOLLAR)
    assert await settling.credits_of(USER) == 0


async def test_without_a_chain_a_deposit_is_refused_at_once(dsn: str) -> None:

    database = await Database.connect(dsn)
    with pytest.raises(ChainUnavailable, match="not up yet"):
        await ChainPaymentAdapter(database, SystemClock()).confirm(USER, reference="r", nano=DOLLAR)
    await database.close()


# payouts


async def test_a_root_is_posted_within_the_deposits_and_its_lines_are_claimed(settling: Settling) -> None:
    await settling.deposit_by_wallet(settling.addresses[USER], DOLLAR_MICRO, WALLET)
    for _ in range(3):
        await settling.round()
    batch = await earn(settling, "one", written=1_000)
    await settling.until(lambda: is_posted(settling, batch.epoch), "the root is not posted")
    claiming = asyncio.create_task(ChainPaymentAdapter(settling.database, SystemClock()).claim(OWNER))

    async def is_done() -> bool:
        await asyncio.sleep(0.02)
        return claiming.done()

    await settling.until(is_done, "the claim has no end")
    (claimed,) = claiming.result()
    assert claimed.tx is not None
    assert claimed.micro == batch.promised_micro == await settling.tokens_at(settling.addresses[OWNER]) > 0
    assert (await settling.pool()).paid == batch.promised_micro
    assert await settling.database.payouts.list_claimable(OWNER, limit=9) == []
    assert list(await ChainPaymentAdapter(settling.database, SystemClock()).claim(OWNER)) == []


async def test_a_root_that_promises_more_than_there_is_waits_for_a_deposit(settling: Settling) -> None:
    await settling.deposit_by_wallet(settling.addresses[USER], 10, WALLET)
    for _ in range(3):
        await settling.round()
    await settling.database.ledger.post_transfer(_test_money())
    batch = await earn(settling, "one", written=1_000)
    assert batch.promised_micro > 10
    for _ in range(4):
        await settling.round()
    assert not await is_posted(settling, batch.epoch)
    await settling.deposit_by_wallet(settling.addresses[OWNER], batch.promised_micro, WALLET)
    await settling.until(lambda: is_posted(settling, batch.epoch), "the root is not posted")


async def test_where_money_is_test_money_the_faucet_covers_what_was_given_away(playing: Settling) -> None:
    await playing.database.ledger.post_transfer(_test_money())
    batch = await earn(playing, "one", written=1_000)
    await playing.until(lambda: is_posted(playing, batch.epoch), "the root is not posted")
    assert (await playing.pool()).funded == batch.promised_micro


async def test_batches_are_posted_in_order(playing: Settling) -> None:
    await playing.database.ledger.post_transfer(_test_money())
    for number in range(3):
        await earn(playing, f"job{number}", written=1_000)
    await playing.until(lambda: is_posted(playing, 3), "the last root is not posted")
    assert (await playing.pool()).epoch == 3


async def test_on_another_chain_no_root_counts_as_posted_and_nothing_as_claimed(playing: Settling) -> None:
    await playing.database.ledger.post_transfer(_test_money())
    batch = await earn(playing, "one", written=1_000)
    await playing.until(lambda: is_posted(playing, batch.epoch), "the root is not posted")
    await playing.database.payouts.mark_claimed(playing.addresses[OWNER], claimed_micro=batch.promised_micro)
    await playing.database.chain.leave_chain()
    assert not await is_posted(playing, batch.epoch)
    assert (await playing.database.payouts.payout_totals(OWNER))[2] == 0


def _test_money() -> Transfer:
    return deposit_transfer(USER, ConfirmedDeposit("given", DOLLAR), adapter="test", unix_s=time.time())
