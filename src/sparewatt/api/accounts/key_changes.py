"""The terms of a key after a requested change: budget, expiry, policy and rate limits. Pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from msgspec import UNSET, UnsetType

from sparewatt.api.accounts.policies import policy_text
from sparewatt.core.errors import InvalidField
from sparewatt.core.money import parse_usd
from sparewatt.protocol.api.accounts import KEY_LIFE_S_MAX, BudgetTerms, KeyChange
from sparewatt.store.database import KeyTerms


def changed_terms(terms: KeyTerms, change: KeyChange, *, unix_s: float) -> KeyTerms:
    """`unix_s`: now. Raises InvalidField."""
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
