"""Exits of depositors in Postgres, by the events in the index: a reorg that removes an event removes the exit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparewatt.core.ids import AccountId
from sparewatt.store.chain import EventPosition
from sparewatt.store.connection_pool import Store


@dataclass(frozen=True, slots=True)
class SeenExit:
    """The last event about exits of one address."""

    address: str
    is_paid: bool
    micro: int
    ready_at: int | None
    """In chain time; None once it is paid."""
    block_number: int


@dataclass(frozen=True, slots=True)
class AskedExit:
    """A request for an exit whose event is not in the index yet."""

    account_id: AccountId
    address: str
    micro: int


class ExitStore(Store):
    async def list_seen(self) -> list[SeenExit]:
        """Of every address that ever asked for one."""
        return await self._pool.rows_as(_seen_exit, "exits_seen")

    async def ready_at_of(self, account_id: AccountId) -> int | None:
        """When the exit that an account waits for is ready, in chain time; None if the contract has none of it."""
        found: int | None = await self._pool.value("exit_ready_at", account_id)
        return found

    async def deposited_at(self, address: str) -> int:
        """What was deposited for an address and has not left again, in micro-USD."""
        return int(await self._pool.value("deposited_at", address))

    async def paid_after(self, address: str, position: EventPosition) -> int | None:
        """What the first exit of an address after this event has paid; None if none has, by final events."""
        micro = await self._pool.value("exit_paid_after", address, *position)
        return None if micro is None else int(micro)

    async def list_asked(self) -> list[AskedExit]:
        return await self._pool.rows_as(AskedExit, "exits_asked")


def _seen_exit(*, micro: Any, **columns: Any) -> SeenExit:
    return SeenExit(micro=int(micro), **columns)
