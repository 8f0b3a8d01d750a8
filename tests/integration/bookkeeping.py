"""The books of a real network, read from its Postgres as an auditor would: with SQL, past the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.gateway.accounting import JOURNALS
from sparewatt.ledger.rules import deposit_postings
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.store.ledger import AuditResult, Transfer
from tests.integration.networks import Network, wait_until

OPENED_UNIX_S = 1_790_000_000.0
"""When money of tests was paid in; any moment will do."""

_PAID = """
SELECT cause, count(*) AS payments, -sum(nano)::bigint AS nano FROM postings
WHERE cause LIKE 'job:%' AND (account LIKE 'credits:%' OR account LIKE 'promo:%') GROUP BY cause
"""
"""What each job took from its payer, and in how many lines: one for each class of credits at most."""


@dataclass(frozen=True, slots=True)
class BookedJob:
    id: str
    key_id: str
    state: str
    completion_tokens: int
    cost_nano: int
    paid_nano: int
    payments: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything that the judgement needs, read at one moment."""

    audit: AuditResult
    jobs: Sequence[BookedJob]
    slices: dict[str, int] = field(default_factory=dict)
    """What is reserved, by gateway."""

    def by_id(self) -> dict[str, BookedJob]:
        return {job.id: job for job in self.jobs}

    def charged_twice(self) -> list[str]:
        """Jobs that are in the books more than once, or whose payer paid something else than they cost."""
        ids = [job.id for job in self.jobs]
        twice = {job_id for job_id in ids if ids.count(job_id) > 1} if len(set(ids)) < len(ids) else set()
        wrong = {job.id for job in self.jobs if job.paid_nano != job.cost_nano or job.payments > 1}
        return sorted(twice | wrong)


def dsn_of(network: Network) -> str:
    return network.database_url or EmbeddedPostgres(network.data / "postgres").dsn


def rows(network: Network, query: str, *arguments: object) -> list[dict[str, Any]]:
    async def fetch() -> list[dict[str, Any]]:
        connection = await asyncpg.connect(dsn_of(network))
        try:
            return [dict(row) for row in await connection.fetch(query, *arguments)]
        finally:
            await connection.close()

    return asyncio.run(fetch())


def audit(network: Network) -> AuditResult:
    async def look() -> AuditResult:
        database = await Database.connect(dsn_of(network))
        try:
            return await database.ledger.audit()
        finally:
            await database.close()

    return asyncio.run(look())


def inspect(network: Network) -> Inspection:
    paid = {row["cause"]: row for row in rows(network, _PAID)}
    found = rows(network, "SELECT id, key_id, state, completion_tokens, cost_nano FROM jobs")
    nothing = {"nano": 0, "payments": 0}
    jobs = [
        BookedJob(**row, paid_nano=paid_row["nano"], payments=paid_row["payments"])
        for row in found
        for paid_row in [paid.get(f"job:{row['id']}", nothing)]
    ]
    slices = rows(network, "SELECT instance, sum(nano)::bigint AS nano FROM slices GROUP BY instance")
    return Inspection(audit(network), jobs, {row["instance"]: row["nano"] for row in slices})


def pay_in(network: Network, account_id: str, nano: int, *, cause: str) -> None:
    """Paid credits, as a deposit from outside would bring them."""

    async def post() -> None:
        database = await Database.connect(dsn_of(network))
        try:
            account, amount = AccountId(account_id), Nano(nano)
            lines = tuple(deposit_postings(account, amount))
            await database.ledger.post_transfer(Transfer(cause, "deposit", account, amount, lines, OPENED_UNIX_S))
        finally:
            await database.close()

    asyncio.run(post())


def balance_nano(network: Network, account_id: str) -> int:
    found = rows(network, "SELECT nano FROM balances WHERE account = $1", f"credits:{account_id}")
    return found[0]["nano"] if found else 0


def booked(network: Network, match_id: str) -> dict[str, Any]:
    """A job once it is in the books; that takes a second at most."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = rows(network, "SELECT * FROM jobs WHERE id = $1", match_id)
        return bool(found)

    wait_until(is_there, f"{match_id} is not in the books")
    [job] = found
    return job


def journal_bytes(data: Path) -> dict[str, int]:
    """What lies in the journals under a network's data directory, by gateway."""
    return {path.parent.name: path.stat().st_size for path in (data / "gateway" / JOURNALS).glob("*/jobs.journal")}
