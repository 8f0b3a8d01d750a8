"""Credits that are held for the chain in Postgres: for a lease, a bond or an exit, until final events use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.store.connection_pool import Store, sql
from sparewatt.store.migrations import PgConnection

HOLDS_LISTED_MAX = 100_000
NEW_HOLD_S = 3.0
"""A gateway holds first and then inserts the request; a hold without one is left alone for as long."""
NOTHING = Nano(0)
REQUEST, EXIT = "request", "exit"
"""What credits are held for: tokens for a request, or an exit."""


@dataclass(frozen=True, slots=True)
class CreditHoldRow:
    id: str
    purpose: str
    account_id: AccountId
    address: str
    promo_nano: Nano = NOTHING
    paid_nano: Nano = NOTHING
    lacking_nano: Nano = NOTHING
    """What an exit asks for beyond that: others have reserved it, or it is not there."""
    by_root: bool = False
    """Whether a payout root makes tokens of it; else the faucet of test money."""
    epoch: int | None = None
    """The payout batch that makes tokens of it."""

    @property
    def instance(self) -> str:
        return f"hold:{self.id}"

    @property
    def nano(self) -> Nano:
        return Nano(self.promo_nano + self.paid_nano)


class CreditHoldStore(Store):
    """Credits that wait for the chain. What is held stays in the balance, and nobody else can spend it."""

    async def hold(self, hold: CreditHoldRow, *, with_promo: bool, nano: int) -> CreditHoldRow | None:
        """Hold exactly `nano`, promo credits first where money is test money. None if there is not that much free.

        A hold of this id that exists stays as it is, and is returned.
        """
        async with self._pool.transaction() as connection:
            free = await _lock_free_credits(connection, hold)
            existing = await connection.fetchrow(sql("find_hold"), hold.id)  # behind the lock: two may ask at once
            if existing is not None:
                return CreditHoldRow(**existing)
            amounts = {row["name"]: max(0, row["free"]) for row in free}
            promo = min(nano, amounts.get("promo", 0)) if with_promo else 0
            if promo + amounts.get("credits", 0) < nano:
                return None
            taken = replace(
                hold,
                promo_nano=Nano(promo),
                paid_nano=Nano(nano - promo),
                by_root=hold.purpose == REQUEST and not with_promo,
            )
            await _insert_hold(connection, taken)
        return taken

    async def hold_up_to(self, hold: CreditHoldRow, *, nano: int) -> Nano:
        """Hold as much of `nano` as there is of paid credits; a hold of this id is changed to that.

        Of what it lacks nobody else can reserve anything, once those that have it return it.
        """
        async with self._pool.transaction() as connection:
            return await hold_up_to_within(connection, hold, nano=nano)

    async def release(self, hold_id: str) -> bool:
        """False if there is no such hold: it was used, or released before."""
        async with self._pool.transaction() as connection:
            return await drop_hold_within(connection, hold_id)

    async def release_unasked(self, hold_id: str, account_id: AccountId) -> bool:
        """Release what was held for a request that was not inserted. False, and nothing changes, if there is one.

        A hold has the id of its request, and two callers may use one id at once: a hold that one of them gives back may
        be the other's, whose tokens are on their way.
        """
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_chain_requests_of"), account_id)
            if await connection.fetchval(sql("delete_unasked_hold"), hold_id) is None:
                return False
            await connection.execute(sql("drop_slices"), f"hold:{hold_id}")
            return True

    async def has_unconverted(self) -> bool:
        """Whether a payout batch has something to make tokens of."""
        return bool(await self._pool.value("has_holds_to_convert"))

    async def release_ended(self) -> None:
        """Those of requests that have ended; run after final events were posted, which use them."""
        await self._pool.execute("release_ended_holds")

    async def find(self, hold_id: str) -> CreditHoldRow | None:
        return await self._pool.row_as(CreditHoldRow, "find_hold", hold_id)

    async def list_stale_exits(self, *, wanted: Sequence[str]) -> list[CreditHoldRow]:
        """Holds for exits other than those of these ids."""
        values = (NEW_HOLD_S, list(wanted), HOLDS_LISTED_MAX)
        return await self._pool.rows_as(CreditHoldRow, "stale_exit_holds", *values)

    async def held_by(self, account_id: AccountId) -> dict[str, Nano]:
        """By purpose, in nano-USD."""
        rows = await self._pool.rows("held_by", account_id)
        return {row["purpose"]: Nano(row["nano"]) for row in rows}


async def _lock_free_credits(connection: PgConnection, hold: CreditHoldRow) -> list[Any]:
    await connection.execute(sql("lock_credits"), hold.account_id)
    return list(await connection.fetch(sql("free_credits"), hold.account_id, hold.instance, hold.purpose == EXIT))


async def _insert_hold(connection: PgConnection, hold: CreditHoldRow) -> None:
    amounts = (hold.promo_nano, hold.paid_nano, hold.lacking_nano)
    values = (hold.id, hold.purpose, hold.account_id, hold.address, *amounts, hold.by_root)
    await connection.execute(sql("insert_hold"), *values)
    for name, nano in (("promo", hold.promo_nano), ("credits", hold.paid_nano)):
        if nano:
            await connection.execute(sql("set_slice"), f"{name}:{hold.account_id}", hold.instance, nano)


async def hold_up_to_within(connection: PgConnection, hold: CreditHoldRow, *, nano: int) -> Nano:
    """As `CreditHoldStore.hold_up_to`, within the caller's transaction."""
    free = await _lock_free_credits(connection, hold)
    paid = min(nano, max(0, next((row["free"] for row in free if row["name"] == "credits"), 0)))
    wanted = replace(hold, paid_nano=Nano(paid), lacking_nano=Nano(nano - paid))
    existing = await connection.fetchrow(sql("find_hold"), hold.id)
    if existing is None:
        await _insert_hold(connection, wanted)
    elif CreditHoldRow(**existing) != wanted:
        await connection.execute(sql("change_exit_hold"), hold.id, wanted.paid_nano, wanted.lacking_nano)
        await connection.execute(sql("set_slice"), f"credits:{hold.account_id}", hold.instance, paid)
    return Nano(paid)


async def drop_hold_within(connection: PgConnection, hold_id: str) -> bool:
    """Within the caller's transaction; balances stay as they are."""
    await connection.execute(sql("drop_slices"), f"hold:{hold_id}")
    return await connection.fetchval(sql("delete_hold"), hold_id) is not None
