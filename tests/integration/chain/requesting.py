"""Requests of many accounts and several sending keys, with the chain's process stepped by hand.

`python -m … URL DSN FOLDER` is that process, killed as `killed_lives` says.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.chart import GRANTS, credits_of, promo_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.ledger import Transfer
from tests.integration.chain.killed_lives import kill_after, live_and_die
from tests.integration.chain.single_order import order_one
from tests.integration.chain.stepped_chain import DOLLAR_MICRO, SteppedChain, ensure_account, open_stepped

STUCK_S = 0.5
SENDERS = tuple(SigningKey(bytes(31) + bytes([0x20 + number])) for number in range(2))


@dataclass(slots=True)
class Requesting(SteppedChain):
    rounds_max: ClassVar[int] = 300

    async def until_ended(self, ids: Sequence[str]) -> list[ChainRequestRow]:
        async def have_ended() -> bool:
            return all(row.state in {ChainRequestState.DONE, ChainRequestState.FAILED} for row in await self.rows(ids))

        await self.until(have_ended, "some have not ended")
        return await self.rows(ids)

    async def rows(self, ids: Sequence[str]) -> list[ChainRequestRow]:
        found = await asyncio.gather(*(self.database.chain_requests.find(each) for each in ids))
        return [row for row in found if row is not None]

    async def make_account(self, number: int, *, promo: int = 0) -> AccountId:
        account = AccountId(f"acc_{number}")
        await ensure_account(self.database, account)
        if promo:
            lines = ((promo_of(account), promo), (GRANTS, -promo))
            unix_s = SystemClock().unix_s()
            await self.database.ledger.post_transfer(
                Transfer(f"grant:{account}", "grant", account, Nano(promo), lines, unix_s)
            )
        return account

    async def order(self, account: AccountId, reference: str, *, deposit_micro: int = DOLLAR_MICRO) -> str:
        asked = await self.order_params()
        return await order_one(self.leases, account, asked, deposit_micro=deposit_micro, reference=reference)

    async def balances(self, account: AccountId) -> tuple[Nano, Nano]:
        """Credits that were paid for, and those that were given."""
        names = [credits_of(account), promo_of(account)]
        found = await self.database.ledger.balances(names)
        return found[names[0]], found[names[1]]

    async def events(self, *names: str) -> list[ChainEvent]:
        return await self.database.chain.events_after((-1, 0), up_to_block=10**9, names=names, limit=10_000)


@asynccontextmanager
async def open_requesting(url: str, dsn: str, folder: Path) -> AsyncIterator[Requesting]:
    async with open_stepped(
        Requesting, url, dsn, folder, test_money=True, senders=SENDERS, stuck_s=STUCK_S
    ) as requesting:
        yield requesting


def main(url: str, dsn: str, folder: str) -> None:
    """The process that is killed."""

    async def live(operations: int) -> None:
        async with open_requesting(url, dsn, Path(folder)) as requesting:
            kill_after(operations)
            for _ in range(requesting.rounds_max):
                await requesting.round()

    live_and_die(live)


if __name__ == "__main__":
    main(*sys.argv[1:])
