"""The money service of a gateway, made from its settings."""

from __future__ import annotations

from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidAmount, StartupError
from sparewatt.core.money import NANO_PER_USD, Nano, parse_usd
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.ledger.credits import CreditRules, CreditService
from sparewatt.ledger.deposit_adapters import ChainPaymentAdapter, adapters_for
from sparewatt.ledger.money_service import MoneyService
from sparewatt.ledger.payouts import PayoutService
from sparewatt.store.database import Database

DEVELOPMENT_DAILY = Nano(10 * NANO_PER_USD)
"""The daily budget of the treasury where test money is given away, unless a setting says otherwise."""
_HOUR_S = 3_600.0


def make_money_service(settings: GatewaySettings, database: Database, *, clock: Clock) -> MoneyService:
    """Raises StartupError for settings that mean nothing."""
    if settings.development and settings.public_url is not None:
        raise StartupError("A development network gives test money away: it cannot have a --public-url.")
    on_chain = ChainPaymentAdapter(database, clock) if settings.chain_url else None
    return MoneyService(
        books=database.ledger,
        credits=CreditService(database.ledger, rules=_credit_rules(settings), clock=clock),
        settlement=PayoutService(database.payouts, clock=clock),
        adapters=adapters_for(development=settings.development, chain=on_chain),
        on_chain=on_chain,
        payout_s=settings.payout_hours * _HOUR_S,
    )


def _credit_rules(settings: GatewaySettings) -> CreditRules:
    daily = _read_usd(settings.treasury_daily_usd, "treasury_daily_usd")
    return CreditRules(
        signup=_read_usd(settings.signup_credit_usd, "signup_credit_usd"),
        promo_days=settings.promo_days,
        grants_per_address_day=settings.grants_per_address_day,
        treasury_daily=daily or (DEVELOPMENT_DAILY if settings.development else daily),
    )


def _read_usd(text: str, name: str) -> Nano:
    try:
        return parse_usd(text)
    except InvalidAmount as error:
        raise StartupError(f"A setting in [gateway] is wrong: {name}: {error.message}") from None
