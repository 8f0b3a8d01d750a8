"""Rulings on the uptime of leases that ended, in Postgres: what each renter is credited, and what was paid of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.store.connection_pool import Store


def uptime_cause(order_id: str) -> str:
    """Of the transfer that pays it: a lease is credited once."""
    return f"uptime:{order_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UptimeCreditRow:
    order_id: str
    lease_id: str
    account_id: AccountId
    ppm: int
    """Of a million seconds in which it was to run, those that it ran."""
    due_nano: int
    reason: str | None
    """Why nothing is due."""
    ended_unix_s: float
    paid_nano: int | None = None
    paid_unix_s: float | None = None


@dataclass(frozen=True, slots=True)
class LeaseRenter:
    order_id: str
    lease_id: str
    account_id: AccountId


@dataclass(frozen=True, slots=True)
class WaitingCredits:
    leases: int
    nano: int


class UptimeCreditStore(Store):
    async def insert(self, row: UptimeCreditRow) -> None:
        """Unless the lease was ruled on before."""
        values = (row.order_id, row.lease_id, row.account_id, row.ppm, row.due_nano, row.reason, row.ended_unix_s)
        await self._pool.execute("insert_uptime_credit", *values)

    async def find(self, order_ids: Sequence[str]) -> dict[str, UptimeCreditRow]:
        """By order; those that were ruled on."""
        rows = await self._pool.rows_as(UptimeCreditRow, "find_uptime_credits", list(order_ids))
        return {row.order_id: row for row in rows}

    async def recent(self, *, limit: int) -> list[UptimeCreditRow]:
        return await self._pool.rows_as(UptimeCreditRow, "recent_uptime_credits", limit)

    async def due(self, *, limit: int) -> list[UptimeCreditRow]:
        """Not paid yet, the oldest first."""
        return await self._pool.rows_as(UptimeCreditRow, "due_uptime_credits", limit)

    async def waiting(self) -> WaitingCredits:
        found = await self._pool.row_as(WaitingCredits, "waiting_uptime_credits")
        return found or WaitingCredits(0, 0)

    async def note_paid(self, order_id: str) -> None:
        await self._pool.execute("note_uptime_credit_paid", order_id)

    async def credited_since(self, unix_s: float) -> Nano:
        return Nano(await self._pool.value("uptime_credited_since", unix_s))

    async def renters_of(self, order_ids: Sequence[str]) -> list[LeaseRenter]:
        """Of orders that accounts of this network made."""
        return await self._pool.rows_as(LeaseRenter, "renters_of_orders", list(order_ids))

    async def accounts_behind(self, addresses: Sequence[str], *, node_keys: Sequence[str]) -> set[AccountId]:
        """Accounts that any of these addresses or node keys is of; a stranger's are not known."""
        rows = await self._pool.rows("accounts_behind", list(addresses), list(node_keys))
        return {AccountId(row["account_id"]) for row in rows}
