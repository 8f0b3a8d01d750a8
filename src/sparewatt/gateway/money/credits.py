"""/v1/credits and /v1/key in OpenRouter's shapes, and /v1/treasury: what is there, and how more comes."""

from __future__ import annotations

from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta

from sparewatt.accounts.principal import Principal, require_operator
from sparewatt.core.errors import InvalidField, KeyNotFound
from sparewatt.core.ids import AccountId
from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX, NAME_CHARS_MAX
from sparewatt.core.money import format_usd
from sparewatt.gateway.http import admit_rate, authenticate, authenticate_operator, identify, json_reply, read_json
from sparewatt.gateway.money.amounts import AmountBody, amount_in, number, reference_in, shown
from sparewatt.gateway.services import Services, services_of
from sparewatt.ledger.budgets import period_start
from sparewatt.ledger.credits import Balance
from sparewatt.ledger.deposits import TEST, adapter_named
from sparewatt.store.database import KeyRow, Period

PERIODS: dict[Period, str] = {"day": "daily", "week": "weekly", "month": "monthly"}


class GrantBody(AmountBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    account: str
    days: Annotated[float, Meta(gt=0, le=3660)] | None = None
    memo: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] | None = None


class DepositBody(AmountBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    adapter: str = TEST


async def show_credits(request: web.Request) -> web.StreamResponse:
    """Of who asks; an operator may name another account."""
    services = services_of(request)
    who = await authenticate(request, "inference")
    balance = await services.money.credits.balance(await account_asked(request, who))
    return json_reply({"data": describe_balance(balance)})


async def account_asked(request: web.Request, who: Principal) -> AccountId:
    """Whose money it is about: one's own, or for operators that of `?account=`."""
    wanted = request.query.get("account")
    if wanted is None or wanted == who.account_id:
        return who.account_id
    require_operator(who)
    return (await services_of(request).people.show(wanted)).id


def describe_balance(balance: Balance) -> dict[str, Any]:
    return {
        "total_credits": number(balance.received),
        "total_usage": number(balance.spent),
        **shown("balance", balance.total),
        **shown("promo", balance.promo),
        "promo_expires_at": balance.promo_ends_unix_s,
        **shown("paid", balance.paid),
        **shown("reserved", balance.reserved),
        **shown("granted", balance.granted),
        **shown("deposited", balance.deposited),
        **shown("expired", balance.expired),
    }


async def grant_credits(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    await authenticate_operator(request)
    wanted = await read_json(request, GrantBody, limit=CONTROL_BODY_BYTES_MAX)
    nano, reference = amount_in(wanted), reference_in(wanted, rng=services.rng)
    account = await _open_account(wanted.account, services)
    posted = await services.money.credits.grant(account, nano, reference=reference, days=wanted.days, memo=wanted.memo)
    return await _told(services, account, reference=reference, posted=posted)


async def _open_account(wanted: str, services: Services) -> AccountId:
    """Raises AccountNotFound, or InvalidField for a closed one, where nobody could spend what it gets."""
    row = await services.people.show(wanted)
    if row.closed_at is not None:
        raise InvalidField(f"The account {row.id} is closed: nobody could spend the credits.", param="account")
    return row.id


async def deposit_credits(request: web.Request) -> web.StreamResponse:
    """What has arrived is what the adapter says."""
    services = services_of(request)
    who = await authenticate(request, "admin")
    wanted = await read_json(request, DepositBody, limit=CONTROL_BODY_BYTES_MAX)
    adapter = adapter_named(wanted.adapter, services.money.adapters)
    nano, reference = amount_in(wanted), reference_in(wanted, rng=services.rng)
    arrival = await adapter.confirm(who.account_id, reference=reference, nano=nano)
    posted = arrival.posted
    if posted is None:
        posted = await services.money.credits.deposit(who.account_id, arrival, adapter=wanted.adapter)
    return await _told(services, who.account_id, reference=reference, posted=posted)


async def _told(services: Services, account: AccountId, *, reference: str, posted: bool) -> web.Response:
    """A repeated request is told that nothing changed."""
    balance = await services.money.credits.balance(account)
    told = {"id": reference, "account": account, "posted": posted, "credits": describe_balance(balance)}
    return json_reply(told, status=201 if posted else 200)


async def show_treasury(request: web.Request) -> web.StreamResponse:
    """Owners may see what there is for those who serve free credits."""
    await authenticate(request, "node")
    return json_reply({"data": await describe_treasury(services_of(request))})


async def fund_treasury(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    await authenticate_operator(request)
    wanted = await read_json(request, AmountBody, limit=CONTROL_BODY_BYTES_MAX)
    reference = reference_in(wanted, rng=services.rng)
    posted = await services.money.credits.fund_treasury(amount_in(wanted), reference=reference)
    told = {"id": reference, "posted": posted, "treasury": await describe_treasury(services)}
    return json_reply(told, status=201 if posted else 200)


async def describe_treasury(services: Services) -> dict[str, Any]:
    treasury = await services.money.credits.treasury()
    return {
        **shown("balance", treasury.balance),
        **shown("daily_budget", treasury.daily),
        **shown("redeemed_today", treasury.redeemed_today),
    }


async def show_key(request: web.Request) -> web.StreamResponse:
    """About the key that asks."""
    services = services_of(request)
    who = await identify(request)
    admit_rate(request)
    if who.key is None:
        raise KeyNotFound("You are logged in without a key. 'GET /v1/keys' lists the keys of your account.")
    return json_reply({"data": await _describe_key(who.key, services)})


async def _describe_key(key: KeyRow, services: Services) -> dict[str, Any]:
    books, now = services.database.books, services.clock.unix_s()
    since: dict[str, float] = {period: period_start(period, now) for period in PERIODS}
    spent = {name: await books.spent_by_key(key.id, since_unix_s=at) for name, at in {**since, "ever": 0.0}.items()}
    left = None if key.budget_nano is None else max(0, key.budget_nano - spent[key.budget_period or "day"])
    deposited = (await services.money.credits.balance(key.account_id)).deposited
    return {
        "label": f"{key.prefix}…",
        "name": key.name,
        "usage": number(spent["ever"]),
        **{f"usage_{said}": number(spent[period]) for period, said in PERIODS.items()},
        "usage_nano": spent["ever"],
        "limit": None if key.budget_nano is None else number(key.budget_nano),
        "limit_usd": None if key.budget_nano is None else format_usd(key.budget_nano),
        "limit_remaining": None if left is None else number(left),
        "limit_reset": PERIODS[key.budget_period] if key.budget_period is not None else None,
        "is_free_tier": deposited == 0,
        "is_provisioning_key": "admin" in key.scopes,
        "rate_limit": {"requests": key.requests_per_min or -1, "interval": "1m"},
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
    }
