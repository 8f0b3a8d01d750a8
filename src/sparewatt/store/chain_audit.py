"""The comparison of the books with the chain in Postgres: gateways ask for it, the chain's process answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparewatt.store.connection_pool import Store

BALANCES_LISTED_MAX = 100_000


@dataclass(frozen=True, slots=True)
class PoolFlows:
    """Of one pool, in micro-USD, by all events up to a block."""

    deposited: int
    funded: int
    exited: int
    claimed: int


@dataclass(frozen=True, slots=True)
class BooksOwe:
    """In nano-USD."""

    owed: int
    """Credits, earnings, payouts, fees, the treasury and the uptime fund."""
    held: int
    """For exits."""
    elsewhere: int
    """What came in by no chain: test money, and what the operator declared."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    asked: int
    answered: int
    report: str | None
    """JSON."""


class ChainAuditStore(Store):
    async def ask(self) -> int:
        """Returns the number of the question; it is answered once `answered` is as high."""
        return int(await self._pool.value("ask_audit"))

    async def read(self) -> AuditRow:
        row = await self._pool.row_as(AuditRow, "read_audit")
        if row is None:
            raise RuntimeError("the audit has its row from the migration on")
        return row

    async def answer(self, number: int, report: str) -> None:
        await self._pool.execute("answer_audit", number, report)

    async def pool_flows(self, *, up_to_block: int, pool_id: int) -> PoolFlows:
        row = await self._pool.row("pool_flows", up_to_block, pool_id)
        return PoolFlows(**_integers(row))

    async def books_owe(self) -> BooksOwe:
        return BooksOwe(**_integers(await self._pool.row("books_owe")))

    async def pocket_balances(self) -> dict[str, int]:
        """The accounts of all pockets in the ledger, in nano-USD."""
        rows = await self._pool.rows("pocket_balances", BALANCES_LISTED_MAX)
        return {row["account"]: row["nano"] for row in rows}

    async def shortfall(self) -> int:
        return int(await self._pool.value("shortfall"))


def _integers(row: Any) -> dict[str, int]:
    return {name: int(value) for name, value in row.items()}
