"""The uptime fund: money that the operator put aside to credit renters whose leases were down, with a daily limit.

An account of the ledger of its own. A credit moves from it to the renter's credits under the cause of its lease, so
that it is paid once, however often and by however many gateways that is tried.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.clock import Clock
from sparewatt.core.errors import IdReused
from sparewatt.core.ids import NETWORK_ACCOUNT
from sparewatt.core.money import Nano
from sparewatt.ledger import chart, rules
from sparewatt.ledger.budgets import period_start
from sparewatt.ledger.credits import checked_transfer_nano
from sparewatt.store.ledger import LedgerStore, Transfer
from sparewatt.store.uptime_credits import UptimeCreditRow, UptimeCreditStore, uptime_cause

CREDITS_PER_ROUND = 100


@dataclass(frozen=True, slots=True)
class UptimeFundStatus:
    balance: Nano
    daily: Nano
    credited_today: Nano

    @property
    def left_today(self) -> int:
        return max(0, self.daily - self.credited_today)


def payable_now(due: int, status: UptimeFundStatus) -> Nano:
    """All of a credit, or nothing yet; of one above a whole day's limit, that limit."""
    nano = min(due, status.daily)
    return Nano(nano if nano <= min(status.left_today, status.balance) else 0)


@dataclass(frozen=True, slots=True)
class UptimeFund:
    books: LedgerStore
    credits: UptimeCreditStore
    daily: Nano
    clock: Clock

    async def status(self) -> UptimeFundStatus:
        balances = await self.books.balances([chart.UPTIME_FUND])
        today = await self.credits.credited_since(period_start("day", self.clock.unix_s()))
        return UptimeFundStatus(balances[chart.UPTIME_FUND], self.daily, today)

    async def add(self, nano: Nano, *, reference: str) -> bool:
        """The operator declares to have put so much aside. False if it was posted before.

        Raises IdReused if that was another amount.
        """
        lines = tuple(rules.uptime_fund_postings(checked_transfer_nano(nano)))
        cause = f"uptime_fund:{reference}"
        transfer = Transfer(cause, "uptime_fund", NETWORK_ACCOUNT, nano, lines, self.clock.unix_s())
        if await self.books.post_transfer(transfer):
            return True
        if await self.books.find_transfer(cause) != (NETWORK_ACCOUNT, nano):
            raise IdReused(
                "This id was used before, for another amount, so nothing was done. Choose another id.", param="id"
            )
        return False

    async def pay_due(self) -> Nano:
        """Pay credits in the order in which their leases ended, until limit or fund is used up. Returns how much."""
        paid = 0
        for row in await self.credits.due(limit=CREDITS_PER_ROUND):
            nano = await self._pay(row)
            if nano is None:
                break  # the next ones wait behind it
            paid += nano
        return Nano(paid)

    async def _pay(self, row: UptimeCreditRow) -> int | None:
        """None if it has to wait: for tomorrow, for the operator, or because another gateway pays just now."""
        if await self.books.find_transfer(uptime_cause(row.order_id)) is not None:  # killed before it was noted
            await self.credits.note_paid(row.order_id)
            return 0
        status = await self.status()
        nano = payable_now(row.due_nano, status)
        if not nano:
            return None
        lines = tuple(rules.uptime_credit_postings(row.account_id, nano))
        cause, now = uptime_cause(row.order_id), self.clock.unix_s()
        transfer = Transfer(cause, "uptime_credit", row.account_id, nano, lines, now)
        # Every credit changes the fund's balance, so of two that were decided by the same status one is posted.
        if not await self.books.post_if_unchanged(transfer, standing={chart.UPTIME_FUND: status.balance}):
            return None
        await self.credits.note_paid(row.order_id)
        return nano
