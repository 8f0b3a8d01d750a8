"""The books in a real Postgres: the suite of all books, and what only a database can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import AccountId
from sparewatt.ledger import chart
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.ledger import JobRow, LedgerStore
from tests.integration.databases import fresh_database
from tests.unit.ledger.books_suite import CLEAN, COST, CREDITS, MONTH_S, BooksSuite, deposit, grant, job, nano_of
from tests.unit.ledger.samples import NOW_S, OWNER


@pytest.fixture
async def dsn(server: EmbeddedPostgres) -> AsyncIterator[str]:
    async with fresh_database(server) as dsn:
        yield dsn


@pytest.fixture
async def books(dsn: str) -> AsyncIterator[LedgerStore]:
    pool = await ConnectionPool.connect(dsn)
    yield LedgerStore(pool)
    await pool.close()


@pytest.fixture
async def hand(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Somebody with access to the database who goes around the books."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


class TestBooksInPostgres(BooksSuite):
    pass


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE postings SET nano = nano + 1",
        "UPDATE postings SET account = 'credits:acc_thief' WHERE account = 'credits:acc_payer'",
        "DELETE FROM postings WHERE account = 'credits:acc_payer'",
        "DELETE FROM postings_2023_11",
    ],
)
async def test_postings_refuse_to_be_changed(
    books: LedgerStore, hand: asyncpg.Connection[asyncpg.Record], damage: str
) -> None:
    await books.post_transfer(deposit("d", 500))
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await hand.execute(damage)
    assert await books.audit() == CLEAN


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("INSERT INTO postings VALUES ('x', '2023-11-15', 'credits:acc_x', 5)", {"total", "unbalanced_causes"}),
        (
            "INSERT INTO postings VALUES ('x', '2023-11-15', 'a', 5), ('y', '2023-11-15', 'a', -5)",
            {"unbalanced_causes"},
        ),
        (
            "INSERT INTO postings VALUES ('x', '2023-11-15', 'job:x', 5), ('x', '2023-11-15', 'job:y', -5)",
            {"open_clearing_accounts"},
        ),
        ("UPDATE balances SET nano = nano + 1 WHERE account = 'credits:acc_payer'", {"wrong_balances"}),
        ("DELETE FROM balances WHERE account = 'credits:acc_payer'", {"wrong_balances"}),
        ("INSERT INTO balances VALUES ('credits:acc_x', 5)", {"wrong_balances"}),
        ("INSERT INTO carried VALUES ('credits:acc_x', 5)", {"total", "wrong_balances"}),
        ("UPDATE balances SET nano = -1 WHERE account = 'promo:acc_payer'", {"wrong_balances", "overdrawn"}),
    ],
    ids=["one line", "two causes", "clearing", "balance", "no balance", "new balance", "carried", "overdrawn"],
)
async def test_the_audit_finds_damage(
    books: LedgerStore, hand: asyncpg.Connection[asyncpg.Record], damage: str, found: set[str]
) -> None:
    await books.post_transfer(deposit("d", 50_000))
    await books.post_transfer(grant("g", 5))
    await books.post_jobs([job("1")], instance="a")
    assert (await books.audit()).is_clean
    await hand.execute(damage)
    audit = await books.audit()
    named = {name for name in audit.__slots__ if getattr(audit, name)}
    assert found <= named
    assert not audit.is_clean


async def test_wrong_balances_are_mended_by_rebuilding(
    books: LedgerStore, hand: asyncpg.Connection[asyncpg.Record]
) -> None:
    await books.post_transfer(deposit("d", 50_000))
    await books.post_jobs([job("1")], instance="a")
    await hand.execute("UPDATE balances SET nano = 7; INSERT INTO balances VALUES ('credits:acc_x', 5)")
    await hand.execute("DELETE FROM balances WHERE account LIKE 'earned:%'")
    await books.rebuild_balances()
    assert await books.audit() == CLEAN
    assert await nano_of(books, CREDITS) == 50_000 - COST
    assert await nano_of(books, chart.earned_by(OWNER)) == 950


async def test_money_that_is_posted_while_balances_are_rebuilt_is_counted(books: LedgerStore) -> None:
    await books.post_transfer(deposit("d", 10**9))
    batches = [[job(f"{batch}_{n}") for n in range(20)] for batch in range(10)]
    await asyncio.gather(
        *(books.post_jobs(batch, instance="a") for batch in batches), *(books.rebuild_balances() for _ in range(5))
    )
    assert await books.audit() == CLEAN
    assert await nano_of(books, CREDITS) == 10**9 - 200 * COST


async def test_gateways_that_post_the_same_jobs_crosswise_settle_each_once(dsn: str, books: LedgerStore) -> None:
    await books.post_transfer(deposit("d", 10**9))
    accounts = [AccountId(f"acc_{n}") for n in range(20)]
    for account in accounts:
        await books.post_transfer(deposit(f"d:{account}", 10**9, account=account))
    rows = [job(str(n), account=accounts[n % 20]) for n in range(200)]
    others = [LedgerStore(await ConnectionPool.connect(dsn)) for _ in range(2)]
    orders = [rows, rows[::-1], rows[100:] + rows[:100]]
    settled = await asyncio.gather(
        *(
            retried(each, order[at : at + 50], str(n))
            for n, (each, order) in enumerate(zip([books, *others], orders, strict=True))
            for at in range(0, 200, 50)
        )
    )
    assert sum(settled) == 200
    assert await nano_of(books, chart.earned_by(OWNER)) == 200 * 950
    assert (await books.audit()).is_clean
    for each in others:
        await each._pool.close()


async def retried(books: LedgerStore, rows: Sequence[JobRow], instance: str) -> int:
    """As the ledger does: what cannot be posted now is posted the next time."""
    for _ in range(10):
        try:
            return await books.post_jobs(rows, instance=instance)
        except StoreUnavailable:
            continue
    raise AssertionError("never posted")


async def test_months_are_made_and_dropped_while_others_post(dsn: str, books: LedgerStore) -> None:
    await books.post_transfer(deposit("d", 10**9, unix_s=NOW_S + 12 * MONTH_S))
    other = LedgerStore(await ConnectionPool.connect(dsn))
    rows = [job(f"{month}_{n}", opened_unix_s=NOW_S + month * MONTH_S) for n in range(10) for month in range(8)]
    work = [retried(each, rows[at : at + 20], "a") for each in (books, other) for at in range(0, 80, 20)]
    settled = await asyncio.gather(*work)
    assert sum(settled) == 80
    late = [job(f"late_{n}", opened_unix_s=NOW_S + 7 * MONTH_S) for n in range(60)]
    work = [retried(each, late[at : at + 10], "a") for each in (books, other) for at in range(0, 60, 10)]
    await asyncio.gather(books.forget_months(before_unix_s=NOW_S + 6 * MONTH_S), *work)
    assert await nano_of(books, CREDITS) == 10**9 - 140 * COST
    assert await books.audit() == CLEAN
    await books.rebuild_balances()
    assert await nano_of(books, CREDITS) == 10**9 - 140 * COST
    await other._pool.close()
