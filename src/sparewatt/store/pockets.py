"""Pockets on the chain in Postgres: what stands in each by final events, with the ledger in the same transaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId
from sparewatt.core.money import Nano
from sparewatt.store.connection_pool import ConnectionPool, Store, sql
from sparewatt.store.credit_holds import CreditHoldRow, drop_hold_within, hold_up_to_within
from sparewatt.store.ledger import LedgerStore, Transfer, post_transfer_within
from sparewatt.store.migrations import PgConnection
from sparewatt.store.payouts import CREDIT_POOL_ID, REWARD_POOL_ID

POCKETS_LISTED_MAX = 100_000
NANO_PER_MICRO = 1_000
REFUND_RETRY_S = 3_600.0
"""After a refund that failed."""
REFUND_QUIET_S = 10.0
"""After the last request of an address: a renter's next order is paid with what is owed, and need not wait for it."""


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
class PocketView:
    """What the books know about the parties of an event, read in the transaction that posts it."""

    rows: Mapping[PocketKey, PocketRow]
    owners: Mapping[str, AddressOwner]
    given: Mapping[AccountId, int]
    """Promo credits that stand on the chain as test tokens, in nano-USD."""
    on_chain: Mapping[AccountId, int]
    """All that stands in an account's pockets, in nano-USD."""
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
    for_exit: CreditHoldRow | None = None
    """A deposit is held for the exit that its address has asked for, if there is one, before anyone can reserve it."""


class PocketStore(Store):
    def __init__(self, pool: ConnectionPool, ledger: LedgerStore) -> None:
        super().__init__(pool)
        self._ledger = ledger

    async def owners(self, addresses: Iterable[str]) -> dict[str, AddressOwner]:
        """Of those addresses that belong to an account."""
        rows = await self._pool.rows("address_owners", list(addresses))
        return {row["address"]: AddressOwner(AccountId(row["account_id"]), row["is_held"]) for row in rows}

    async def payable_micro(self, address: str) -> int:
        """What the address can pay into the escrow without credits, by final events."""
        return int(await self._pool.value("payable_from_pockets", address))

    async def book(
        self,
        event_id: str,
        *,
        keys: Sequence[PocketKey],
        addresses: Sequence[str],
        tx_hash: bytes,
        position: tuple[int, int],
        unix_s: float,
        decide: Callable[[PocketView], PocketEntry],
    ) -> bool:
        """Post an event once: pockets and ledger change together. False if it was posted before.

        `position` is its block and its log's index there.
        """
        await self._ledger.ensure_months([unix_s])
        async with self._pool.transaction() as connection:
            if await connection.fetchval(sql("book_event"), event_id) is None:
                return False
            view = await _read_view(connection, keys, addresses, tx_hash)
            entry = decide(view)
            for row in entry.changed:
                await _write(connection, row)
            if entry.uses_hold is not None:
                await drop_hold_within(connection, entry.uses_hold)
            for transfer in entry.transfers:
                await post_transfer_within(connection, transfer)
            if entry.for_exit is not None:
                await _hold_for_exit(connection, entry.for_exit, position)
        return True

    async def owned(self) -> list[OwnedPocketRow]:
        """The pockets of all accounts."""
        return await self._pool.rows_as(_owned_row, "owned_pockets", POCKETS_LISTED_MAX)

    async def list_refunds(self, *, limit: int) -> list[OwnedPocketRow]:
        """What the escrow owes to accounts at addresses that nothing is asked for at the moment."""
        return await self._pool.rows_as(_owned_row, "refunds_due", REFUND_RETRY_S, REFUND_QUIET_S, limit)

    async def micro_of(self, account_id: AccountId) -> dict[Pocket, int]:
        """The sums of an account's pockets."""
        rows = await self._pool.rows("pockets_of_account", account_id)
        return {Pocket(row["pocket"]): int(row["micro"]) for row in rows}

    async def held_addresses(self) -> dict[str, AccountId]:
        """Every address whose key the network holds."""
        rows = await self._pool.rows("held_addresses", POCKETS_LISTED_MAX)
        return {row["address"]: AccountId(row["account_id"]) for row in rows}


async def _hold_for_exit(connection: PgConnection, hold: CreditHoldRow, position: tuple[int, int]) -> None:
    micro = await connection.fetchval(sql("exit_unpaid_at"), hold.address, *position)
    if micro is not None:
        await hold_up_to_within(connection, hold, nano=int(micro) * NANO_PER_MICRO)


async def _write(connection: PgConnection, row: PocketRow) -> None:
    if _is_over(row):
        await connection.execute(sql("delete_pocket"), row.pocket.value, row.id)
    else:
        await connection.execute(sql("set_pocket"), row.pocket.value, row.id, row.address, row.micro)


def _is_over(row: PocketRow) -> bool:
    """An empty lease keeps its row: compensation may still come to its renter."""
    return row.micro == 0 and row.pocket is not Pocket.ESCROW


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
        on_chain={AccountId(row["account_id"]): row["on_chain"] for row in standing},
        free_credits={AccountId(row["account_id"]): row["free"] for row in standing},
        hold=None if hold is None else CreditHoldRow(**hold),
    )


def _pocket_row(*, pocket: str, micro: Any, **columns: Any) -> PocketRow:
    return PocketRow(Pocket(pocket), micro=int(micro), **columns)


def _owned_row(*, pocket: str, micro: Any, **columns: Any) -> OwnedPocketRow:
    return OwnedPocketRow(pocket=Pocket(pocket), micro=int(micro), **columns)


# another chain


async def write_off_pockets_within(connection: PgConnection) -> None:
    """The network leaves its chain: what stood in contracts is credits again, what was claimed can be claimed anew.

    Tokens at addresses stay behind, on the chain that is left.
    """
    now: dt.datetime = await connection.fetchval(sql("database_time"))
    await connection.execute(sql("ensure_month"), now.date())
    balances = {row["account"]: int(row["nano"]) for row in await connection.fetch(sql("balances_on_chain"))}
    claimed = int(await connection.fetchval(sql("claimed_nano"), CREDIT_POOL_ID))
    rewards = int(await connection.fetchval(sql("claimed_nano"), REWARD_POOL_ID))
    sums: dict[str, int] = {
        "network:payouts": claimed,
        "network:reward_payouts": rewards,
        "network:deposits": -claimed - rewards,
    }
    for name, nano in balances.items():
        sums[name] = sums.get(name, 0) - nano
        kind, _, account = name.partition(":")
        promo = min(nano, balances.get(f"given:{account}", 0)) if kind in ("escrow", "bond", "owed") else 0
        for target, part in _left_for(kind, account, nano, promo):
            sums[target] = sums.get(target, 0) + part
        if promo:
            balances[f"given:{account}"] = balances[f"given:{account}"] - promo
    lines = tuple((name, nano) for name, nano in sums.items() if nano)
    moved = sum(nano for _, nano in lines if nano > 0)
    await connection.execute(sql("drop_pockets"))
    if moved:
        cause, unix_s = f"leave:{now.isoformat()}", now.timestamp()
        transfer = Transfer(cause, "leave", NETWORK_ACCOUNT, Nano(moved), lines, unix_s)
        await post_transfer_within(connection, transfer)


def _left_for(kind: str, account: str, nano: int, promo: int) -> list[tuple[str, int]]:
    match kind:
        case "given":
            return [("network:grants", nano)]
        case "wallet":
            return [("network:deposits", nano)]
        case _:
            back = [(f"credits:{account}", nano - promo), (f"promo:{account}", promo)]
            return [*back, ("network:deposits", promo), (f"given:{account}", -promo)]
