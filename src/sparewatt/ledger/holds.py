"""Purses and holds: what an account can spend at this gateway process right now, in memory.

A gateway reserves a slice of an account's balance in Postgres and spends from that alone, so that two gateways never
spend the same money and no request waits for the database. A hold takes from the slice at admission; settling it keeps
what was spent until it is posted, and frees the rest at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sparewatt.core.ids import AccountId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.ledger.model import ZERO_AMOUNT, Amount

SLICE_NANO = NANO_PER_USD // 4
"""What a gateway reserves at a time: enough for some hundred usual answers, and little enough to leave for others."""
SLICE_NANO_MAX = 16 * NANO_PER_USD
SLICE_HOLDS = 4
"""A large hold reserves a slice for several like it."""
SLICE_S = 2.0
"""A slice of which half is gone sooner than this is too small for its account: the next one is twice as large."""
SLICE_S_MAX = 10.0
"""A slice that lasts longer than this is too large by now: other gateways could use it. The next one is half of it."""


@dataclass(slots=True, eq=False)
class Purse:
    """One account's slice, in plain integers of nano-USD: every request changes them."""

    account: AccountId
    free_promo: int = 0
    free_paid: int = 0
    held_promo: int = 0
    held_paid: int = 0
    spent_promo: int = 0
    spent_paid: int = 0
    """Settled, but not yet posted."""
    used_at_s: float = 0.0
    holds: int = 0
    refill_nano: int = 0
    """What the next refill should bring; 0 if none is needed."""
    awaited_nano: int = 0
    """The holds of requests that wait for a refill."""
    slice_nano: int = SLICE_NANO
    """What is reserved at a time; it grows for an account that spends fast."""
    low_water_nano: int = 0
    """With less than this free it needs a refill. 0 during a refill, and if the account had no more to give."""
    filled_at_s: float = -SLICE_S

    @property
    def free(self) -> Amount:
        return Amount(Nano(self.free_promo), Nano(self.free_paid))

    @property
    def held(self) -> Amount:
        return Amount(Nano(self.held_promo), Nano(self.held_paid))

    @property
    def spent(self) -> Amount:
        return Amount(Nano(self.spent_promo), Nano(self.spent_paid))

    @property
    def reserved(self) -> Amount:
        """The whole slice, as Postgres has it."""
        return self.free + self.held + self.spent

    @property
    def is_idle(self) -> bool:
        return not (self.holds or self.awaited_nano or self.spent_promo or self.spent_paid)

    def hold(self, nano: int, *, now_s: float) -> Hold | None:
        """Set `nano` aside, promo credits first. None if the purse has less."""
        free_promo = self.free_promo
        total = free_promo + self.free_paid
        self.used_at_s = now_s
        if total < 2 * nano or total - nano < self.low_water_nano:
            self.refill_nano = slice_for(nano)
        if total < nano:
            return None
        promo = min(nano, free_promo)
        paid = nano - promo
        self.free_promo -= promo
        self.free_paid -= paid
        self.held_promo += promo
        self.held_paid += paid
        self.holds += 1
        return Hold(self, Amount(Nano(promo), Nano(paid)))

    def begin_refill(self, *, now_s: float) -> None:
        """Adapts the size of the slice to how long the last one lasted."""
        lasted_s = now_s - self.filled_at_s
        if self.low_water_nano and lasted_s < SLICE_S:
            self.slice_nano = min(2 * self.slice_nano, SLICE_NANO_MAX)
        elif lasted_s > SLICE_S_MAX:
            self.slice_nano = max(self.slice_nano // 2, SLICE_NANO)
        self.refill_nano = self.low_water_nano = 0

    def add_slice(self, more: Amount) -> None:
        """Count what has been reserved in Postgres."""
        self.free_promo += more.promo
        self.free_paid += more.paid

    def end_refill(self, *, is_full: bool, now_s: float) -> None:
        """`is_full`: it got all that was wanted. If not, the account has no more, and there is no low-water mark."""
        self.refill_nano = 0
        self.filled_at_s = now_s
        self.low_water_nano = min(self.slice_nano, self.free_promo + self.free_paid) // 2 if is_full else 0

    def give_back(self) -> Amount:
        """Take out all that is free, to return it to Postgres."""
        free = self.free
        self.free_promo = self.free_paid = self.low_water_nano = self.refill_nano = 0
        self.slice_nano = SLICE_NANO
        return free

    def mark_posted(self, amount: Amount) -> None:
        """Postgres has it now, and has reduced the slice by it."""
        self.spent_promo -= amount.promo
        self.spent_paid -= amount.paid


class Hold(msgspec.Struct, gc=False):
    """Money set aside for one job. It is settled once, however the job ends; a second time does nothing.

    No reference cycle (hence `gc=False`): a purse does not refer to its holds.
    """

    purse: Purse
    amount: Amount
    is_settled: bool = False

    def settle(self, cost: Amount) -> None:
        """Keep what was spent, free the rest. Raises ValueError for more than was held, changing nothing."""
        if self.is_settled:
            return
        promo, paid, held, purse = cost.promo, cost.paid, self.amount, self.purse
        if promo > held.promo or paid > held.paid or promo < 0 or paid < 0:
            raise ValueError("a job cannot cost more than was held for it")
        self.is_settled = True
        purse.holds -= 1
        purse.held_promo -= held.promo
        purse.held_paid -= held.paid
        purse.free_promo += held.promo - promo
        purse.free_paid += held.paid - paid
        purse.spent_promo += promo
        purse.spent_paid += paid

    def release(self) -> None:
        self.settle(ZERO_AMOUNT)


def slice_for(nano: int) -> int:
    return max(SLICE_NANO, SLICE_HOLDS * nano)
