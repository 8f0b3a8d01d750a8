"""What the network pays for checks: free credits, granted to an account of its own every day, which expire unspent."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock
from sparewatt.core.money import Nano
from sparewatt.inference.checks.check_jobs import CHECKS_ACCOUNT
from sparewatt.ledger.credits import CreditService

LASTS_DAYS = 1.5


@dataclass(slots=True)
class CheckFund:
    credits: CreditService
    daily_nano: Nano
    clock: Clock
    _funded: dt.date | None = field(default=None, init=False)

    async def fund(self) -> None:
        """Once a day, whichever gateway comes first. A limit that was changed counts from tomorrow on."""
        today = dt.datetime.fromtimestamp(self.clock.unix_s(), dt.UTC).date()
        if self._funded == today or not self.daily_nano:
            return
        reference = f"checks:{today.isoformat()}:{self.daily_nano}"
        await self.credits.grant(CHECKS_ACCOUNT, self.daily_nano, reference=reference, days=LASTS_DAYS, memo="checks")
        self._funded = today
