"""/v1/keys: make, list, limit, revoke. An account sees its own, an operator everybody's."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from sparewatt.accounts.keys import terms_of
from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX
from sparewatt.core.money import format_usd, parse_usd
from sparewatt.gateway.http import authenticate, json_reply, listing, read_json
from sparewatt.gateway.services import services_of
from sparewatt.store.database import KeyRow, KeyTerms

LIFE_S_MAX = 10 * 366 * 24 * 3600
_Life = Annotated[float, Meta(gt=0, le=LIFE_S_MAX)]


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An amount in dollars, or in nano-dollars."""

    period: Literal["day", "week", "month"]
    usd: Decimal | None = None
    nano: int | None = None

    def amount_nano(self) -> int:
        if (self.usd is None) == (self.nano is None):
            raise InvalidField("A budget has either 'usd' or 'nano'.", param="budget")
        return parse_usd(str(self.usd)) if self.nano is None else self.nano


class KeyChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is; null takes a limit away."""

    name: str | UnsetType = UNSET
    policy: msgspec.Raw | UnsetType = UNSET
    budget: Budget | UnsetType | None = UNSET
    expires_in_s: _Life | UnsetType | None = UNSET
    expires_at: float | UnsetType | None = UNSET
    requests_per_min: int | UnsetType | None = UNSET
    tokens_per_min: int | UnsetType | None = UNSET


class NewKey(KeyChange, frozen=True, forbid_unknown_fields=True):
    scopes: list[str] = msgspec.field(default_factory=lambda: ["inference"])


async def create_key(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "admin")
    wanted = await read_json(request, NewKey, limit=CONTROL_BODY_BYTES_MAX)
    terms = changed(KeyTerms(name="unnamed"), wanted, unix_s=services.clock.unix_s())
    row, secret = await services.keys.create(who.account_id, terms=terms, scopes=wanted.scopes)
    return json_reply(describe_key(row) | {"key": secret}, status=201)


async def list_keys(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "admin")
    return json_reply(listing([describe_key(row) for row in await services.keys.list(who.reach)]))


async def limit_key(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "admin")
    wanted = await read_json(request, KeyChange, limit=CONTROL_BODY_BYTES_MAX)
    unix_s = services.clock.unix_s()

    def change(row: KeyRow) -> KeyTerms:
        return changed(terms_of(row), wanted, unix_s=unix_s)

    row = await services.keys.limit(request.match_info["key_id"], account_id=who.reach, change=change)
    return json_reply(describe_key(row))


async def revoke_key(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "admin")
    row = await services.keys.revoke(request.match_info["key_id"], account_id=who.reach)
    return json_reply(describe_key(row) | {"revoked": True})


def changed(terms: KeyTerms, wanted: KeyChange, *, unix_s: float) -> KeyTerms:
    """The terms with what was asked for. Raises InvalidField."""
    asked: dict[str, Any] = {}
    for name in ("name", "requests_per_min", "tokens_per_min"):
        if getattr(wanted, name) is not UNSET:
            asked[name] = getattr(wanted, name)
    if wanted.policy is not UNSET:
        asked["policy"] = policy_text(wanted.policy)
    if not isinstance(wanted.budget, UnsetType):
        asked["budget_nano"] = wanted.budget.amount_nano() if wanted.budget else None
        asked["budget_period"] = wanted.budget.period if wanted.budget else None
    if wanted.expires_in_s is not UNSET or wanted.expires_at is not UNSET:
        asked["expires_at"] = _expiry(wanted, unix_s=unix_s)
    return replace(terms, **asked)


def _expiry(wanted: KeyChange, *, unix_s: float) -> dt.datetime | None:
    in_s, at = (None if isinstance(v, UnsetType) else v for v in (wanted.expires_in_s, wanted.expires_at))
    if in_s is not None and at is not None:
        raise InvalidField("An expiry is either 'expires_in_s' or 'expires_at'.", param="expires_at")
    ends = at if in_s is None else unix_s + in_s
    if ends is None:
        return None
    if not unix_s < ends <= unix_s + LIFE_S_MAX:
        raise InvalidField("A key expires in the future, within ten years.", param="expires_at")
    return dt.datetime.fromtimestamp(ends, dt.UTC)


def policy_text(raw: msgspec.Raw | UnsetType) -> str | None:
    """A policy as it was written: an object of the vocabulary, or a query as text. Null means none."""
    text = b"" if isinstance(raw, UnsetType) else bytes(raw).strip()
    if text in (b"", b"null"):
        return None
    if text[:1] not in b'{"':
        raise InvalidField("A policy is an object, or a query as text.", param="policy")
    return text.decode()


def shown_policy(policy: str | None) -> msgspec.Raw | None:
    return msgspec.Raw(policy.encode()) if policy is not None else None


def describe_key(row: KeyRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "account_id": row.account_id,
        "name": row.name,
        "prefix": row.prefix,
        "scopes": row.scopes,
        "policy": shown_policy(row.policy),
        "budget": _describe_budget(row),
        "requests_per_min": row.requests_per_min,
        "tokens_per_min": row.tokens_per_min,
        "created_at": row.created_at.timestamp(),
        "expires_at": row.expires_at.timestamp() if row.expires_at else None,
        "last_used_at": row.last_used_at.timestamp() if row.last_used_at else None,
        "revoked_at": row.revoked_at.timestamp() if row.revoked_at else None,
    }


def _describe_budget(row: KeyRow) -> dict[str, Any] | None:
    if row.budget_nano is None:
        return None
    return {"nano": row.budget_nano, "usd": format_usd(row.budget_nano), "period": row.budget_period}
