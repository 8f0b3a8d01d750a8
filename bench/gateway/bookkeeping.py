"""Audits our gateway after a measurement: every answer must be in its ledger, and the ledger must be consistent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import asyncpg
from bench.gateway.tools import CannotMeasure

from sparewatt.store.database import Database

BOOKED_S_MAX = 120.0
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    jobs: int
    receipts: int


def check_books(dsn: str, *, answered: int) -> LedgerCounts:
    """Raises CannotMeasure when answers are missing after a while, or when sums are wrong."""
    return asyncio.run(_check(dsn, answered))


async def _check(dsn: str, answered: int) -> LedgerCounts:
    connection = await asyncpg.connect(dsn)
    try:
        jobs = await _booked_in_time(connection, answered)
        receipts = int(await connection.fetchval("SELECT count(*) FROM receipts"))
    finally:
        await connection.close()
    database = await Database.connect(dsn)
    try:
        audit = await database.ledger.audit()
    finally:
        await database.close()
    if not audit.is_clean:
        raise CannotMeasure(f"The books are not in order: {audit}.")
    return LedgerCounts(jobs, receipts)


async def _booked_in_time(connection: asyncpg.Connection[asyncpg.Record], answered: int) -> int:
    """Polls, since the ledger is written in the background."""
    jobs = 0
    try:
        async with asyncio.timeout(BOOKED_S_MAX):
            while jobs < answered:
                jobs = int(await connection.fetchval("SELECT count(*) FROM jobs WHERE state = 'done'"))
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise CannotMeasure(f"Of {answered} answers only {jobs} are in the books.") from None
    return jobs
