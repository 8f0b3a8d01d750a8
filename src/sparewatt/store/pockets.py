"""Pockets on the chain in Postgres: what stands in each by final events, posted to the ledger in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.store.connection_pool import ConnectionPool, Store, sql
from sparewatt.store.ledger import LedgerStore, Transfer, post_transfer_within
from sparewatt.store.migrations import PgConnection

POCKETS_LISTED_MAX = 100_000


class Pocket(Enum):
    WALLET = "wallet"
    """Tokens at an address whose key the network holds."""
    ESCROW = "escrow"
    """The deposit of a lease."""
    BOND = "bond"
    """A provider's bond, all parts of it."""
    OWED = "owed"
    """What a contract owes to an address."""


PocketKey = tuple[Pocket, str]
"""A pocket, and its id: the address of a wallet or provider, the id of a lease, `contract:address` of what is owed."""


@dataclass(frozen=True, slots=True)
class PocketRow:
    pocket: Pocket
    id: str
    address: str
    """Whose it is."""
    micro: int

    @property
    def key(self) -> PocketKey:
        return self.pocket, self.id


@dataclass(frozen=True, slots=True)
class AddressOwner:
    account_id: AccountId
    is_held: bool
    """Whether the network has the key of the address."""


@dataclass(frozen=True, slots=True)
class OwnedPocketRow:
    """A pocket of an account, at an address whose key the network holds."""

    account_id: AccountId
    pocket: Pocket
    id: str
    address: str
    micro: int


@dataclass(frozen=True, slots=True)
class CreditHoldRow:
    id: str
    purpose: str
    account_id: AccountId
    address: str
    promo_nano: Nano
    paid_nano: Nano
    epoch: int | None

    @property
    def instance(self) -> str:
        return f"hold:{self.id}"

    @property
    def nano(self) -> Nano:
        return Nano(self.promo_nano + self.paid_nano)


@dataclass(frozen=True, slots=True)
class PocketView:
    """What the books know about the parties of an event, read in the transaction that posts it."""

    rows: Mapping[PocketKey, PocketRow]
    owners: Mapping[str, AddressOwner]
    given: Mapping[AccountId, int]
    """Promo credits that stand on the chain as test tokens, in nano-USD."""
    free_credits: Mapping[AccountId, int]
    """Paid credits that nobody has reserved except for an exit, in nano-USD."""
    hold: CreditHoldRow | None


@dataclass(frozen=True, slots=True)
class PocketEntry:
    """What one event changes."""

    changed: Sequence[PocketRow]
    """New contents; what is empty and needs no owner any more is deleted."""
    transfers: Sequence[Transfer]
    uses_hold: str | None = None


class PocketStore(Store):
    def __init__(self, pool: ConnectionPool, ledger: LedgerStore) -> None:
        super().__init__(pool)
        self._ledger = ledger

    async def owners(self, addresses: Iterable[str]) -> dict[str, AddressOwner]:
        """Of those addresses that belong to an account."""
        rows = await self._pool.rows("address_owners", list(addresses))
        return {row["address"]: AddressOwner(AccountId(row["account_id"]), row["is_held"]) for row in rows}

    async def book(
        self,
        event_id: str,
        *,
        keys: Sequence[PocketKey],
        addresses: Sequence[str],
        tx_hash: bytes,
        unix_s: float,
        decide: Callable[[PocketView], PocketEntry],
    ) -> bool:
        """Post an event once: pockets and ledger change together. False if it was posted before."""
        await self._ledger.ensure_months([unix_s])
        async with self._pool.transaction() as connection:
            if await connection.fetchval(sql("book_event"), event_id) is None:
                return False
            view = await _read_view(connection, keys, addresses, tx_hash)
            entry = decide(view)
            for row in entry.changed:
                name = "delete_pocket" if _is_over(row) else "set_pocket"
                values = (row.pocket.value, row.id) if _is_over(row) else _values(row)
                await connection.execute(sql(name), *values)
            if entry.uses_hold is not None:
                await drop_hold_within(connection, entry.uses_hold)
            for transfer in entry.transfers:
                await post_transfer_within(connection, transfer)
        return True

    async def owned(self) -> list[OwnedPocketRow]:
        """The pockets of all accounts."""
        return await self._pool.rows_as(_owned_row, "owned_pockets", POCKETS_LISTED_MAX)

    async def held_addresses(self) -> dict[str, AccountId]:
        """Every address whose key the network holds."""
        rows = await self._pool.rows("held_addresses", POCKETS_LISTED_MAX)
        return {row["address"]: AccountId(row["account_id"]) for row in rows}


def _is_over(row: PocketRow) -> bool:
    """An empty lease keeps its row: compensation may still come to its renter."""
    return row.micro == 0 and row.pocket is not Pocket.ESCROW


def _values(row: PocketRow) -> tuple[Any, ...]:
    return row.pocket.value, row.id, row.address, row.micro


async def _read_view(
    connection: PgConnection, keys: Sequence[PocketKey], addresses: Sequence[str], tx_hash: bytes
) -> PocketView:
    pockets, ids = [pocket.value for pocket, _ in keys], [id_ for _, id_ in keys]
    found = [_pocket_row(**row) for row in await connection.fetch(sql("pockets_of"), pockets, ids)]
    parties = list({*addresses, *(row.address for row in found)})
    owners = {
        row["address"]: AddressOwner(AccountId(row["account_id"]), row["is_held"])
        for row in await connection.fetch(sql("address_owners"), parties)
    }
    accounts = list({owner.account_id for owner in owners.values()})
    standing = await connection.fetch(sql("standing_for_event"), accounts)
    hold = await connection.fetchrow(sql("hold_of_transaction"), tx_hash)
    return PocketView(
        rows={row.key: row for row in found},
        owners=owners,
        given={AccountId(row["account_id"]): row["given"] for row in standing},
        free_credits={AccountId(row["account_id"]): row["free"] for row in standing},
        hold=None if hold is None else CreditHoldRow(**hold),
    )


def _pocket_row(*, pocket: str, micro: Any, **columns: Any) -> PocketRow:
    return PocketRow(Pocket(pocket), micro=int(micro), **columns)


def _owned_row(*, pocket: str, micro: Any, **columns: Any) -> OwnedPocketRow:
    return OwnedPocketRow(pocket=Pocket(pocket), micro=int(micro), **columns)


# holds


class CreditHoldStore(Store):
    """Credits that wait for the chain. What is held stays in the balance, and nobody else can spend it."""

    async def hold(self, hold: CreditHoldRow, *, with_promo: bool, nano: int) -> CreditHoldRow | None:
        """Hold exactly `nano`, promo credits first where they count. None if there is not that much free.

        A hold of this id that exists stays as it is, and is returned.
        """
        async with self._pool.transaction() as connection:
            existing = await connection.fetchrow(sql("find_hold"), hold.id)
            if existing is not None:
                return CreditHoldRow(**existing)
            free = await connection.fetch(sql("lock_free_credits"), hold.account_id, hold.instance)
            amounts = {row["name"]: max(0, row["free"]) for row in free}
            promo = min(nano, amounts.get("promo", 0)) if with_promo else 0
            if promo + amounts.get("credits", 0) < nano:
                return None
            taken = CreditHoldRow(
                hold.id, hold.purpose, hold.account_id, hold.address, Nano(promo), Nano(nano - promo), None
            )
            await _insert_hold(connection, taken)
        return taken

    async def hold_up_to(self, hold: CreditHoldRow, *, nano: int) -> Nano:
        """Hold as much of `nano` as there is of paid credits; a hold of this id is changed to that."""
        async with self._pool.transaction() as connection:
            free = await connection.fetch(sql("lock_free_credits"), hold.account_id, hold.instance)
            paid = min(nano, max(0, next((row["free"] for row in free if row["name"] == "credits"), 0)))
            await drop_hold_within(connection, hold.id)
            held = CreditHoldRow(hold.id, hold.purpose, hold.account_id, hold.address, Nano(0), Nano(paid), None)
            await _insert_hold(connection, held)
        return Nano(paid)

    async def release(self, hold_id: str) -> bool:
        """False if there is no such hold: it was used, or released before."""
        async with self._pool.transaction() as connection:
            return await drop_hold_within(connection, hold_id)

    async def find(self, hold_id: str) -> CreditHoldRow | None:
        return await self._pool.row_as(CreditHoldRow, "find_hold", hold_id)

    async def list_for(self, purpose: str) -> list[CreditHoldRow]:
        return await self._pool.rows_as(CreditHoldRow, "holds_for", purpose, POCKETS_LISTED_MAX)

    async def held_by(self, account_id: AccountId) -> dict[str, Nano]:
        """By purpose, in nano-USD."""
        rows = await self._pool.rows("held_by", account_id)
        return {row["purpose"]: Nano(row["nano"]) for row in rows}


async def _insert_hold(connection: PgConnection, hold: CreditHoldRow) -> None:
    values = (hold.id, hold.purpose, hold.account_id, hold.address, hold.promo_nano, hold.paid_nano)
    await connection.execute(sql("insert_hold"), *values)
    for name, nano in (("promo", hold.promo_nano), ("credits", hold.paid_nano)):
        if nano:
            await connection.execute(sql("set_slice"), f"{name}:{hold.account_id}", hold.instance, nano)


async def drop_hold_within(connection: PgConnection, hold_id: str) -> bool:
    """Within the caller's transaction; balances stay as they are."""
    await connection.execute(sql("drop_slices"), f"hold:{hold_id}")
    return await connection.fetchval(sql("delete_hold"), hold_id) is not None
