"""/v1/key, in OpenRouter's shape: the API key that a request is sent with."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from sparewatt.api.endpoint import get
from sparewatt.api.money.amounts import usd_number, usd_number_or_null
from sparewatt.core.clock import Clock
from sparewatt.core.errors import KeyNotFound
from sparewatt.core.ids import KeyId
from sparewatt.core.money import Nano, format_usd
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.ledger.budgets import period_start
from sparewatt.ledger.credits import CreditService
from sparewatt.protocol.api.credits import KeyInfo, KeyInfoReply, KeyRateLimit, LimitReset
from sparewatt.store.database import BudgetPeriod, KeyRow

_RESETS: dict[BudgetPeriod, LimitReset] = {"day": "daily", "week": "weekly", "month": "monthly"}


class KeySpending(Protocol):
    async def spent_by_key(self, key_id: KeyId, *, since_unix_s: float) -> Nano: ...


class KeyInfoEndpoints:
    def __init__(
        self, *, auth: Authenticator, spending: KeySpending, credit_service: CreditService, clock: Clock
    ) -> None:
        """`spending`: the books."""
        self._auth = auth
        self._spending = spending
        self._credits = credit_service
        self._clock = clock

    @get("/v1/key")
    async def show_key(self, request: web.Request) -> KeyInfoReply:
        """Show the key of this request: what it spent, what it may spend, and when it expires."""
        context = context_of(request)
        principal = await self._auth.identify(context)
        self._auth.charge(context)
        if principal.key is None:
            raise KeyNotFound("You are logged in without a key. 'GET /v1/keys' lists the keys of your account.")
        return KeyInfoReply(data=await self._key_info(principal.key))

    async def _key_info(self, key: KeyRow) -> KeyInfo:
        now = self._clock.unix_s()
        spent = {period: await self._spent_since(key, period_start(period, now)) for period in _RESETS}
        spent_ever = await self._spent_since(key, 0.0)
        budget, period = key.budget_nano, key.budget_period
        deposited = (await self._credits.balance(key.account_id)).deposited
        return KeyInfo(
            label=f"{key.prefix}…",
            name=key.name,
            usage=usd_number(spent_ever),
            usage_daily=usd_number(spent["day"]),
            usage_weekly=usd_number(spent["week"]),
            usage_monthly=usd_number(spent["month"]),
            usage_nano=spent_ever,
            limit=usd_number_or_null(budget),
            limit_usd=None if budget is None else format_usd(budget),
            limit_remaining=usd_number_or_null(None if budget is None else max(0, budget - spent[period or "day"])),
            limit_reset=None if period is None else _RESETS[period],
            is_free_tier=deposited == 0,
            is_provisioning_key="admin" in key.scopes,
            rate_limit=KeyRateLimit(requests=key.requests_per_min or -1),
            expires_at=key.expires_at.isoformat() if key.expires_at else None,
        )

    async def _spent_since(self, key: KeyRow, unix_s: float) -> Nano:
        return await self._spending.spent_by_key(key.id, since_unix_s=unix_s)
