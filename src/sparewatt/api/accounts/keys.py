"""/v1/keys: create, list, change and revoke API keys. An account reaches its own keys, an operator all of them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType

from sparewatt.accounts.keys import KeyService, terms_of
from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField
from sparewatt.core.money import format_usd, parse_usd
from sparewatt.edge.bodies import read_json
from sparewatt.protocol.api.accounts import (
    KEY_LIFE_S_MAX,
    ApiKey,
    ApiKeyList,
    BudgetInfo,
    BudgetTerms,
    CreatedKey,
    KeyChange,
    NewKey,
    RevokedKey,
    ScopeName,
)
from sparewatt.store.database import KeyRow, KeyTerms


@dataclass(slots=True, kw_only=True)
class KeyEndpoints:
    keys: KeyService
    clock: Clock

    @endpoint("POST /v1/keys", access="admin", body=NewKey, status=201)
    async def create_key(self, request: web.Request, principal: Principal) -> CreatedKey:
        """Create an API key. The reply is the only one that holds the key itself."""
        body = await read_json(request, NewKey)
        terms = changed_terms(KeyTerms(name="unnamed"), body, unix_s=self.clock.unix_s())
        row, secret = await self.keys.create(principal.account_id, terms=terms, scopes=body.scopes)
        return CreatedKey(**msgspec.structs.asdict(describe_key(row)), key=secret)

    @endpoint("GET /v1/keys", access="admin")
    async def list_keys(self, _: web.Request, principal: Principal) -> ApiKeyList:
        """List the API keys, revoked ones included."""
        return ApiKeyList(data=[describe_key(row) for row in await self.keys.list(principal.account_filter)])

    @endpoint("PATCH /v1/keys/{key_id}", access="admin", body=KeyChange)
    async def change_key(self, request: web.Request, principal: Principal) -> ApiKey:
        """Change a key's name, policy, budget, expiry or rate limits."""
        body = await read_json(request, KeyChange)
        unix_s = self.clock.unix_s()

        def change(row: KeyRow) -> KeyTerms:
            return changed_terms(terms_of(row), body, unix_s=unix_s)

        key_id, account_id = request.match_info["key_id"], principal.account_filter
        return describe_key(await self.keys.change_terms(key_id, account_id=account_id, change=change))

    @endpoint("DELETE /v1/keys/{key_id}", access="admin")
    async def revoke_key(self, request: web.Request, principal: Principal) -> RevokedKey:
        """Revoke a key for good."""
        row = await self.keys.revoke(request.match_info["key_id"], account_id=principal.account_filter)
        return RevokedKey(**msgspec.structs.asdict(describe_key(row)))


# changes


def changed_terms(terms: KeyTerms, change: KeyChange, *, unix_s: float) -> KeyTerms:
    """Budget, expiry, policy and rate limits after a change. `unix_s`: now. Pure. Raises InvalidField."""
    changes: dict[str, Any] = {}
    for name in ("name", "requests_per_min", "tokens_per_min"):
        if getattr(change, name) is not UNSET:
            changes[name] = getattr(change, name)
    if not isinstance(change.policy, UnsetType):
        changes["policy"] = policy_text(change.policy)
    if not isinstance(change.budget, UnsetType):
        changes["budget_nano"] = _amount_nano(change.budget) if change.budget else None
        changes["budget_period"] = change.budget.period if change.budget else None
    if change.expires_in_s is not UNSET or change.expires_at is not UNSET:
        changes["expires_at"] = _expiry(change, unix_s=unix_s)
    return replace(terms, **changes)


def _amount_nano(budget: BudgetTerms) -> int:
    if (budget.usd is None) == (budget.nano is None):
        raise InvalidField("A budget has either 'usd' or 'nano'.", param="budget")
    return parse_usd(str(budget.usd)) if budget.nano is None else budget.nano


def _expiry(change: KeyChange, *, unix_s: float) -> dt.datetime | None:
    in_s, at = (None if isinstance(value, UnsetType) else value for value in (change.expires_in_s, change.expires_at))
    if in_s is not None and at is not None:
        raise InvalidField("An expiry is either 'expires_in_s' or 'expires_at'.", param="expires_at")
    expires_at = at if in_s is None else unix_s + in_s
    if expires_at is None:
        return None
    if not unix_s < expires_at <= unix_s + KEY_LIFE_S_MAX:
        raise InvalidField("A key expires in the future, within ten years.", param="expires_at")
    return dt.datetime.fromtimestamp(expires_at, dt.UTC)


def policy_text(policy: msgspec.Raw) -> str | None:
    """A policy of a body as it is stored: an object of the vocabulary, or a query as a JSON string. None for null.

    `KeyService.check_policy` checks what it means. Raises InvalidField for JSON of any other kind.
    """
    text = bytes(policy).strip()
    if text in (b"", b"null"):
        return None
    if text[:1] not in b'{"':
        raise InvalidField("A policy is an object, or a query as text.", param="policy")
    return text.decode()


# replies


def describe_key(row: KeyRow) -> ApiKey:
    return ApiKey(
        id=row.id,
        account_id=row.account_id,
        name=row.name,
        prefix=row.prefix,
        scopes=scope_names(row.scopes),
        policy=policy_json(row.policy),
        budget=_describe_budget(row),
        requests_per_min=row.requests_per_min,
        tokens_per_min=row.tokens_per_min,
        created_at=row.created_at.timestamp(),
        expires_at=row.expires_at.timestamp() if row.expires_at else None,
        last_used_at=row.last_used_at.timestamp() if row.last_used_at else None,
        revoked_at=row.revoked_at.timestamp() if row.revoked_at else None,
    )


def _describe_budget(row: KeyRow) -> BudgetInfo | None:
    if row.budget_nano is None or row.budget_period is None:  # the database has both or neither
        return None
    return BudgetInfo(nano=row.budget_nano, usd=format_usd(row.budget_nano), period=row.budget_period)


def scope_names(scopes: tuple[str, ...]) -> tuple[ScopeName, ...]:
    """The same scopes: `KeyService` stores no others."""
    return cast("tuple[ScopeName, ...]", scopes)


def policy_json(policy: str | None) -> msgspec.Raw:
    """A stored policy, unchanged, as a part of a JSON reply."""
    return msgspec.Raw(b"null" if policy is None else policy.encode())
