"""A network of an older release starts with other contracts: accounts and money stay, whatever interrupts it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import asyncpg
import msgspec
import pytest

from sparewatt.chain.process import STARTED_OVER
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ContractsOutdated
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.chain_restart import restart_transfers
from sparewatt.ledger.chart import DEPOSITS, PAYOUTS, credits_of, earned_by, pocket_of
from sparewatt.ledger.deposit_adapters import ChainPaymentAdapter
from sparewatt.ledger.payouts import PayoutService
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.api.ledger import ChainAudit
from sparewatt.store.database import Database
from sparewatt.store.ledger import Transfer
from tests.integration.chain.restarting import age, chain_process, settings_for, until
from tests.integration.chain.settling import OWNER, USER
from tests.integration.chain.stepped_chain import ensure_account
from tests.integration.money.samples import delivery, job, settle

ROOT = Path(__file__).parents[3]
DOLLAR = 10**9
CRASH_S = 60.0
NETWORK = AccountId("acc_network")


async def balance(database: Database, name: str) -> int:
    return int((await database.ledger.balances([name]))[name])


async def deposit(database: Database, usd: int, *, reference: str) -> None:
    adapter = ChainPaymentAdapter(database, SystemClock())
    await adapter.confirm(USER, reference=reference, nano=Nano(usd * DOLLAR))


async def earn(database: Database, name: str, *, written: int) -> int:
    """The owner earns what an answer cost the user, less the fee, and it is in a batch on the chain."""
    paid = job(name, delivery(OWNER, prompt=0, written=written), paid=40 * written, account=USER, at=time.time())
    await settle(database, paid)
    batch = await PayoutService(database.payouts, clock=SystemClock()).make_batch()
    assert batch is not None

    async def is_claimable() -> bool:
        return bool(await database.payouts.list_claimable(OWNER, limit=1))

    await until(is_claimable, "the root is not posted")
    return batch.added_micro


async def claim(database: Database) -> None:
    rows = await ChainPaymentAdapter(database, SystemClock()).claim(OWNER)
    assert [row.reason for row in rows] == [None]


async def audit(database: Database) -> ChainAudit:
    """The books are in order, and so is the chain by them once the pool is covered."""

    async def is_covered() -> bool:
        return not await database.chain_restarts.awaits_cover()

    await until(is_covered, "the pool is not covered")
    number = await database.chain_audit.ask()

    async def is_answered() -> bool:
        return (await database.chain_audit.read()).answered >= number

    await until(is_answered, "the chain was not compared")
    report = (await database.chain_audit.read()).report
    assert report is not None
    assert (await database.ledger.audit()).is_clean
    return msgspec.json.decode(report, type=ChainAudit)


async def make_older_network(anvil: Anvil, dsn: str) -> dict[str, int]:
    """Deposits, claimed and unclaimed earnings, and money in escrow; returns what each account should have."""
    settings = settings_for(anvil.url, dsn, anvil._folder)
    async with chain_process(settings) as database:
        for account in (USER, OWNER):
            await ensure_account(database, account)
        await deposit(database, 20, reference="before")
        claimed = await earn(database, "one", written=1_000_000)
        await claim(database)
        unclaimed = await earn(database, "two", written=500_000)
        nano = Nano(3 * DOLLAR)
        lines = ((pocket_of("escrow", USER), int(nano)), (credits_of(USER), -nano))
        await database.ledger.post_transfer(Transfer("lease", "lease_deposit", USER, nano, lines, time.time()))

        async def is_in_wallet() -> bool:
            return await balance(database, pocket_of("wallet", OWNER)) == claimed * 1000

        await until(is_in_wallet, "the claim is not booked")
        user = await balance(database, credits_of(USER))
    age(anvil._folder)
    return {credits_of(USER): user + nano, credits_of(OWNER): claimed * 1000, earned_by(OWNER): unclaimed * 1000}


async def check_and_use(database: Database, expected: dict[str, int]) -> None:
    """All money is there, nothing refers to the old contracts, and everything works again."""
    assert {name: await balance(database, name) // 1000 for name in expected} == {
        name: nano // 1000 for name, nano in expected.items()
    }
    for name in (PAYOUTS, pocket_of("wallet", OWNER), pocket_of("escrow", USER)):
        assert await balance(database, name) == 0
    found = await database.accounts.find_account(OWNER)
    assert found is not None
    assert found.chain_address is not None
    report = await audit(database)
    assert report.in_order, report
    await deposit(database, 5, reference="after")
    await deposit(database, 20, reference="before")  # asked again by its id: it was done
    batch = await PayoutService(database.payouts, clock=SystemClock()).make_batch()
    assert batch is not None
    assert (batch.epoch, batch.added_micro) == (1, expected[earned_by(OWNER)] // 1000)

    async def is_claimable() -> bool:
        return bool(await database.payouts.list_claimable(OWNER, limit=1))

    await until(is_claimable, "the root is not posted")
    await claim(database)
    assert await balance(database, credits_of(USER)) == expected[credits_of(USER)] + 5 * DOLLAR
    assert (await audit(database)).in_order


async def test_a_network_of_an_older_release_keeps_its_money_also_if_it_is_killed_on_the_way(
    anvil: Anvil, dsn: str
) -> None:
    expected = await make_older_network(anvil, dsn)
    for checkpoint in ("books", "deployer.key", "contracts.json", "step 4"):
        assert await crash(anvil, dsn, checkpoint) == -signal.SIGKILL, checkpoint
    settings = settings_for(anvil.url, dsn, anvil._folder)
    async with chain_process(settings) as database:
        assert settings.ready_file is not None
        assert settings.ready_file.read_bytes() == STARTED_OVER
        await check_and_use(database, expected)
    async with chain_process(settings) as database:
        assert settings.ready_file is not None
        assert settings.ready_file.read_bytes() != STARTED_OVER
        assert await balance(database, credits_of(USER)) == expected[credits_of(USER)] + 5 * DOLLAR
    kept = {path.name for path in anvil._folder.iterdir()}
    assert len([name for name in kept if name.startswith("deployer-")]) == 1


async def crash(anvil: Anvil, dsn: str, checkpoint: str) -> int | None:
    argv = ("-m", "tests.integration.chain.restarting", anvil.url, dsn, str(anvil._folder), checkpoint)
    process = await asyncio.create_subprocess_exec(sys.executable, *argv, cwd=ROOT)
    try:
        async with asyncio.timeout(CRASH_S):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode


async def test_where_money_is_no_test_money_the_process_stops_and_gateways_say_why(anvil: Anvil, dsn: str) -> None:
    playing = settings_for(anvil.url, dsn, anvil._folder)
    async with chain_process(playing) as database:
        await ensure_account(database, USER)
    age(anvil._folder, "escrow")
    record = json.loads((anvil._folder / "contracts.json").read_bytes())
    for flags in ({"test_money": False}, {"deploy": False}):
        with pytest.raises(ContractsOutdated, match=r"another release \(escrow\)"):
            async with chain_process(settings_for(anvil.url, dsn, anvil._folder, **flags)):
                pass
    assert json.loads((anvil._folder / "contracts.json").read_bytes()) == record
    database = await Database.connect(dsn)
    try:
        assert "another release" in (await database.chain.problem() or "")
        with pytest.raises(ContractsOutdated, match="sparewatt chain deploy"):
            await deposit(database, 1, reference="late")
        with pytest.raises(ContractsOutdated):
            await ChainPaymentAdapter(database, SystemClock()).claim(USER)
        assert await balance(database, DEPOSITS) == 0
    finally:
        await database.close()
    async with chain_process(playing) as database:
        assert await database.chain.problem() is None


async def test_tokens_that_an_older_release_did_not_book_become_credits(dsn: str) -> None:
    """Its books knew no wallets; its index has every transfer of the token."""
    database = await Database.connect(dsn)
    connection = await asyncpg.connect(dsn)
    try:
        address, stranger = await ensure_account(database, OWNER), "0x" + "9" * 40
        for number, (sender, receiver, amount) in enumerate(
            [(stranger, address, 700), (address, stranger, 200), (stranger, stranger, 5_000)]
        ):
            args = json.dumps({"sender": sender, "receiver": receiver, "amount": amount})
            await connection.execute(
                "INSERT INTO chain_events VALUES (1, $1, $2, $2, 0, 'token', 'Transfer', $3::jsonb)",
                number,
                b"\x01" * 32,
                args,
            )
        assert await database.chain_restarts.start_over("0xold", restart_transfers)
        assert await balance(database, credits_of(OWNER)) == 500_000
        assert not await database.chain_restarts.start_over("0xold", restart_transfers)
        assert await balance(database, credits_of(OWNER)) == 500_000
        assert await database.chain.count_events() == 0
        assert (await database.ledger.audit()).is_clean
    finally:
        await connection.close()
        await database.close()
