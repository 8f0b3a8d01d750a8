"""/v1/credits and /v1/key, in OpenRouter's shape: balances, grants by operators, deposits, and what a key spent.

/v1/treasury: the money that pays node owners for serving free credits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, RequestLimiter, endpoint
from sparewatt.api.money.statements import AccountFinder, amounts, select_account
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, KeyNotFound
from sparewatt.core.ids import AccountId, KeyId
from sparewatt.core.money import Nano, format_usd, parse_usd
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.ledger.budgets import period_start
from sparewatt.ledger.chain_credits import ChainCreditService, ChainHoldings
from sparewatt.ledger.credits import Balance, CreditService, TreasuryStatus, checked_transfer_nano
from sparewatt.ledger.deposit_adapters import DepositAdapter, adapter_named
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.api.credits import (
    AmountBody,
    ChainHoldingsInfo,
    CreditBalance,
    CreditBalanceReply,
    CreditPosting,
    DepositBody,
    GrantBody,
    KeyInfo,
    KeyInfoReply,
    KeyRateLimit,
    LimitReset,
    TreasuryBalance,
    TreasuryPosting,
    TreasuryReply,
)
from sparewatt.store.database import BudgetPeriod, KeyRow

REFERENCE_CHARS_MAX = 100
"""Of the ids that clients give to grants and deposits, so that a repeated request changes nothing (idempotency)."""
_RESETS: dict[BudgetPeriod, LimitReset] = {"day": "daily", "week": "weekly", "month": "monthly"}


@dataclass(slots=True, kw_only=True)
class CreditEndpoints:
    accounts: AccountFinder
    credits: CreditService
    adapters: Mapping[str, DepositAdapter]
    """The payment rails by which deposits come in, by name."""
    chain: ChainCreditService | None
    """None if the network has no chain."""
    rng: Rng
    """Makes ids for requests without one."""

    @endpoint("GET /v1/credits", access="inference", query=("account",))
    async def show_credits(self, request: web.Request, principal: Principal) -> CreditBalanceReply:
        """Show the credits of your account; operators may name another."""
        account = await select_account(request, principal, self.accounts)
        holdings = None if self.chain is None else await self.chain.holdings(account)
        return CreditBalanceReply(data=balance_of(await self.credits.balance(account), holdings))

    @endpoint("POST /v1/credits/grant", access="operator", body=GrantBody, status=201, other_statuses=(200,))
    async def grant_credits(self, request: web.Request, _: Principal) -> Reply[CreditPosting]:
        """Give an account free credits. Operators only."""
        body = await read_json(request, GrantBody)
        nano, reference = amount_of(body), reference_of(body, rng=self.rng)
        account = await self._find_open(body.account)
        posted = await self.credits.grant(account, nano, reference=reference, days=body.days, memo=body.memo)
        return await self._posting(account, reference=reference, posted=posted)

    @endpoint("POST /v1/credits/deposit", access="admin", body=DepositBody, status=201, other_statuses=(200,))
    async def deposit_credits(self, request: web.Request, principal: Principal) -> Reply[CreditPosting]:
        """Add paid credits to your account. The amount that counts is the one that the adapter confirms."""
        body = await read_json(request, DepositBody)
        adapter = adapter_named(body.adapter, self.adapters)
        nano, reference = amount_of(body), reference_of(body, rng=self.rng)
        arrival = await adapter.confirm(principal.account_id, reference=reference, nano=nano)
        posted = arrival.posted
        if posted is None:
            posted = await self.credits.deposit(principal.account_id, arrival, adapter=body.adapter)
        return await self._posting(principal.account_id, reference=reference, posted=posted)

    @endpoint("GET /v1/treasury", access="node")
    async def show_treasury(self, _: web.Request, __: Principal) -> TreasuryReply:
        """Show what the treasury holds, and how much of it becomes payable per day."""
        return TreasuryReply(data=treasury_balance_of(await self.credits.treasury()))

    @endpoint("POST /v1/treasury/fund", access="operator", body=AmountBody, status=201, other_statuses=(200,))
    async def fund_treasury(self, request: web.Request, _: Principal) -> Reply[TreasuryPosting]:
        """Add money to the treasury. Operators only."""
        body = await read_json(request, AmountBody)
        reference = reference_of(body, rng=self.rng)
        posted = await self.credits.fund_treasury(amount_of(body), reference=reference)
        treasury = treasury_balance_of(await self.credits.treasury())
        posting = TreasuryPosting(id=reference, posted=posted, treasury=treasury)
        return Reply(posting, status=201 if posted else 200)

    async def _find_open(self, id_or_email: str) -> AccountId:
        """Raises AccountNotFound, or InvalidField for a closed account, which could not spend what it gets."""
        row = await self.accounts.get(id_or_email)
        if row.closed_at is not None:
            raise InvalidField(f"The account {row.id} is closed: its credits could not be spent.", param="account")
        return row.id

    async def _posting(self, account: AccountId, *, reference: str, posted: bool) -> Reply[CreditPosting]:
        """201, or 200 for a repeated request that changed nothing."""
        balance = balance_of(await self.credits.balance(account))
        posting = CreditPosting(id=reference, account=account, posted=posted, credits=balance)
        return Reply(posting, status=201 if posted else 200)


def amount_of(body: AmountBody) -> Nano:
    """Raises InvalidField or InvalidAmount: not exactly one amount, another currency, zero, less, or too much."""
    if body.currency != "USD":
        raise InvalidField(f"{body.currency[:20]!r} is not known here. Amounts are in USD.", param="currency")
    if (body.usd is None) == (body.nano is None):
        raise InvalidField("Say how much, either as 'usd' or as 'nano'.", param="usd")
    return checked_transfer_nano(parse_usd(str(body.usd)) if body.nano is None else body.nano)


def reference_of(body: AmountBody, *, rng: Rng) -> str:
    """The client's idempotency key, or a new one. Raises InvalidField."""
    return usable_reference(body.id, rng=rng)


def usable_reference(given: str | None, *, rng: Rng) -> str:
    """As `reference_of`, for an id that comes without an amount."""
    if given is None:
        return rng.randbytes(10).hex()
    if not (0 < len(given) <= REFERENCE_CHARS_MAX and given.isascii() and given.isprintable()):
        raise InvalidField(f"An id has 1 to {REFERENCE_CHARS_MAX} printable ASCII characters.", param="id")
    return given


def usd_number(nano: int | None) -> msgspec.Raw:
    """A `UsdNumber`: a JSON number with every digit. `null` for None."""
    return msgspec.Raw(b"null" if nano is None else format_usd(nano).encode())


def holdings_of(holdings: ChainHoldings) -> ChainHoldingsInfo:
    return ChainHoldingsInfo(
        address=holdings.address,
        is_held=holdings.is_held,
        exits_ready_at=None if holdings.exit_ready_at is None else float(holdings.exit_ready_at),
        **amounts(held=holdings.held_for_requests, exits=holdings.held_for_exits),
        **amounts(
            escrow=holdings.escrow * NANO_PER_MICRO,
            bonds=holdings.bond * NANO_PER_MICRO,
            owed=holdings.owed * NANO_PER_MICRO,
            wallet=holdings.wallet * NANO_PER_MICRO,
        ),
    )


def balance_of(balance: Balance, holdings: ChainHoldings | None = None) -> CreditBalance:
    return CreditBalance(
        total_credits=usd_number(balance.received),
        total_usage=usd_number(balance.spent),
        promo_expires_at=balance.promo_ends_unix_s,
        chain=None if holdings is None else holdings_of(holdings),
        **amounts(balance=balance.total, promo=balance.promo, paid=balance.paid, reserved=balance.reserved),
        **amounts(granted=balance.granted, deposited=balance.deposited, expired=balance.expired),
    )


def treasury_balance_of(treasury: TreasuryStatus) -> TreasuryBalance:
    redeemed_today = treasury.redeemed_today
    return TreasuryBalance(
        **amounts(balance=treasury.balance, daily_budget=treasury.daily, redeemed_today=redeemed_today)
    )


# what a key spent


class KeySpending(Protocol):
    """Implemented by `LedgerStore`."""

    async def spent_by_key(self, key_id: KeyId, *, since_unix_s: float) -> Nano: ...


@dataclass(slots=True, kw_only=True)
class KeyInfoEndpoints:
    limiter: RequestLimiter
    spending: KeySpending
    credits: CreditService
    clock: Clock

    @endpoint("GET /v1/key", access="identified")
    async def show_key(self, request: web.Request, principal: Principal) -> KeyInfoReply:
        """Show the key of this request: what it spent, what it may spend, and when it expires."""
        self.limiter.charge(context_of(request))
        if principal.key is None:
            raise KeyNotFound("You are logged in without a key. 'GET /v1/keys' lists the keys of your account.")
        return KeyInfoReply(data=await self._key_info(principal.key))

    async def _key_info(self, key: KeyRow) -> KeyInfo:
        now, spent_by_key = self.clock.unix_s(), self.spending.spent_by_key
        spent = {period: await spent_by_key(key.id, since_unix_s=period_start(period, now)) for period in _RESETS}
        spent_ever = await spent_by_key(key.id, since_unix_s=0.0)
        budget, period = key.budget_nano, key.budget_period
        deposited = (await self.credits.balance(key.account_id)).deposited
        return KeyInfo(
            label=f"{key.prefix}…",
            name=key.name,
            usage=usd_number(spent_ever),
            usage_daily=usd_number(spent["day"]),
            usage_weekly=usd_number(spent["week"]),
            usage_monthly=usd_number(spent["month"]),
            usage_nano=spent_ever,
            limit=usd_number(budget),
            limit_usd=None if budget is None else format_usd(budget),
            limit_remaining=usd_number(None if budget is None else max(0, budget - spent[period or "day"])),
            limit_reset=None if period is None else _RESETS[period],
            is_free_tier=deposited == 0,
            is_provisioning_key="admin" in key.scopes,
            rate_limit=KeyRateLimit(requests=key.requests_per_min or -1),
            expires_at=key.expires_at.isoformat() if key.expires_at else None,
        )
