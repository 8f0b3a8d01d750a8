"""Purses and holds: what an account can spend at this gateway right now, in memory.

A gateway reserves a slice of an account's balance in Postgres and spends from that alone, so that two gateways never
spend the same money and no request waits for the database. A hold takes from the slice at admission; settling it keeps
what was spent until the books have it, and gives the rest back at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparewatt.core.ids import AccountId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.ledger.model import NOTHING, Amount

SLICE_NANO = NANO_PER_USD // 4
"""What a gateway reserves at a time: enough for some hundred usual answers, little enough to leave for others."""
SLICE_HOLDS = 4
"""A large hold brings a slice for a few like it."""


@dataclass(slots=True)
class Purse:
    """One account's money at this gateway."""

    account: AccountId
    reserved: Amount = NOTHING
    """This gateway's slice, as Postgres knows it."""
    held: Amount = NOTHING
    spent: Amount = NOTHING
    """Settled, but not yet posted."""
    used_at_s: float = 0.0
    holds: int = 0
    thirsty_nano: int = 0
    """What the last holds would like to see reserved, if that is more than there is."""

    @property
    def free(self) -> Amount:
        reserved, held, spent = self.reserved, self.held, self.spent
        return Amount(
            Nano(reserved.promo - held.promo - spent.promo), Nano(reserved.paid - held.paid - spent.paid)
        )  # at once: this is asked for every request

    @property
    def is_idle(self) -> bool:
        return self.holds == 0 and self.spent == NOTHING

    def hold(self, nano: Nano, *, now_s: float) -> Hold | None:
        """Set `nano` aside, free credits first. None if there is not that much here."""
        free = self.free
        total = free.promo + free.paid
        self.used_at_s = now_s
        if total < 2 * nano:
            self.thirsty_nano = slice_for(nano)
        if total < nano:
            return None
        taken, _ = free.take(nano)
        self.held += taken
        self.holds += 1
        return Hold(self, taken)

    def reserve(self, more: Amount) -> None:
        """A slice has been reserved in Postgres."""
        self.reserved += more

    def give_back(self) -> Amount:
        """All that is free, to be returned to Postgres."""
        free = self.free
        self.reserved -= free
        return free

    def posted(self, amount: Amount) -> None:
        """The books have it now: it is neither ours nor pending any more."""
        self.reserved -= amount
        self.spent -= amount


@dataclass(slots=True)
class Hold:
    """Money set aside for one job. Settled once, however the job ends; a second time does nothing."""

    purse: Purse
    amount: Amount
    over: bool = field(default=False)

    def settle(self, cost: Amount) -> None:
        """Keep what was spent, free the rest. Raises ValueError for more than was held, changing nothing."""
        if self.over:
            return
        if cost.promo > self.amount.promo or cost.paid > self.amount.paid or cost.promo < 0 or cost.paid < 0:
            raise ValueError("a job cannot cost more than was held for it")
        self.over = True
        self.purse.held -= self.amount
        self.purse.holds -= 1
        self.purse.spent += cost

    def release(self) -> None:
        self.settle(NOTHING)


def slice_for(nano: int) -> int:
    return max(SLICE_NANO, SLICE_HOLDS * nano)
