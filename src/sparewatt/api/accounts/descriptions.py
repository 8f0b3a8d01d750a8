"""Rows of accounts and keys as the API shows them."""

from __future__ import annotations

from typing import cast

from sparewatt.api.accounts.policies import shown_policy
from sparewatt.core.money import format_usd
from sparewatt.protocol.api.accounts import AccountInfo, ApiKey, BudgetInfo, ScopeName
from sparewatt.store.accounts import AccountRow
from sparewatt.store.database import KeyRow


def describe_account(row: AccountRow) -> AccountInfo:
    return AccountInfo(
        id=row.id,
        name=row.name,
        email=row.email,
        role=row.role,
        policy=shown_policy(row.policy),
        chain_address=row.chain_address,
        created_at=row.created_at.timestamp(),
        closed_at=row.closed_at.timestamp() if row.closed_at else None,
    )


def describe_key(row: KeyRow) -> ApiKey:
    return ApiKey(
        id=row.id,
        account_id=row.account_id,
        name=row.name,
        prefix=row.prefix,
        scopes=scope_names(row.scopes),
        policy=shown_policy(row.policy),
        budget=_describe_budget(row),
        requests_per_min=row.requests_per_min,
        tokens_per_min=row.tokens_per_min,
        created_at=row.created_at.timestamp(),
        expires_at=row.expires_at.timestamp() if row.expires_at else None,
        last_used_at=row.last_used_at.timestamp() if row.last_used_at else None,
        revoked_at=row.revoked_at.timestamp() if row.revoked_at else None,
    )


def scope_names(scopes: tuple[str, ...]) -> tuple[ScopeName, ...]:
    """The same scopes: `KeyService` stores no others."""
    return cast("tuple[ScopeName, ...]", scopes)


def _describe_budget(row: KeyRow) -> BudgetInfo | None:
    if row.budget_nano is None or row.budget_period is None:  # the database has both or neither
        return None
    return BudgetInfo(nano=row.budget_nano, usd=format_usd(row.budget_nano), period=row.budget_period)
