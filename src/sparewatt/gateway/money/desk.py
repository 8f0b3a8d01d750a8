"""What the routes about money share, and the chores that go with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidAmount, StartupError
from sparewatt.core.log import Log
from sparewatt.core.money import NANO_PER_USD, Nano, format_usd, parse_usd
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.ledger.credits import CreditRules, Credits
from sparewatt.ledger.deposits import DepositAdapter, adapters_for
from sparewatt.ledger.on_chain import OnChain
from sparewatt.ledger.settlement import Settlement
from sparewatt.store.database import Database

_log = Log("sparewatt.gateway")
_HOUR_S = 3_600.0
DEVELOPMENT_DAILY = Nano(10 * NANO_PER_USD)
"""Of the test money that a network on one machine begins with."""


@dataclass(frozen=True, slots=True)
class MoneyDesk:
    credits: Credits
    settlement: Settlement
    adapters: Mapping[str, DepositAdapter]
    on_chain: OnChain | None
    """None where the network has no chain."""
    database: Database
    payout_s: float

    async def tend(self) -> None:
        """Credits that ran out, promo income that the treasury covers, and the next payout batch."""
        expired, redeemed = await self.credits.expire(), await self.credits.redeem()
        batch = await self.settlement.make_batch(quiet_s=self.payout_s)
        await self.database.books.forget_grant_counts()
        if expired or redeemed:
            _log.info("credits_tended", expired_usd=format_usd(expired), redeemed_usd=format_usd(redeemed))
        if batch is not None:
            _log.info("payout_batch_made", epoch=batch.epoch, leaves=batch.leaves, added_micro=batch.added_micro)


def make_desk(settings: GatewaySettings, database: Database, *, clock: Clock) -> MoneyDesk:
    """Raises StartupError for settings that mean nothing."""
    if settings.development and settings.public_url is not None:
        raise StartupError("A development network gives test money away: it cannot have a --public-url.")
    daily = _read_usd(settings.treasury_daily_usd, "treasury_daily_usd")
    rules = CreditRules(
        signup=_read_usd(settings.signup_credit_usd, "signup_credit_usd"),
        promo_days=settings.promo_days,
        grants_per_address_day=settings.grants_per_address_day,
        treasury_daily=daily or (DEVELOPMENT_DAILY if settings.development else daily),
    )
    on_chain = OnChain(database, clock) if settings.chain_url else None
    return MoneyDesk(
        credits=Credits(database.books, rules=rules, clock=clock),
        settlement=Settlement(database.payouts, clock=clock),
        adapters=adapters_for(development=settings.development, chain=on_chain),
        on_chain=on_chain,
        database=database,
        payout_s=settings.payout_hours * _HOUR_S,
    )


def _read_usd(text: str, name: str) -> Nano:
    try:
        return parse_usd(text)
    except InvalidAmount as error:
        raise StartupError(f"A setting in [gateway] is wrong: {name}: {error.message}") from None
