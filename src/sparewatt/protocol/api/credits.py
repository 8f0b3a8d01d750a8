"""Credits, the treasury, and what a key may spend: bodies and replies, with OpenRouter's fields and ours.

Amounts are in dollars (`…_usd`, an exact decimal string) and in nano-dollars (`…_nano`, an integer of 1e-9 $).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sparewatt.core.limits import NAME_CHARS_MAX

LimitReset = Literal["daily", "weekly", "monthly"]

UsdNumber = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "number"})]
"""Dollars as a JSON number with every digit, as OpenRouter's clients read it."""
UsdNumberOrNull = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": ["number", "null"]})]
"""Not `UsdNumber | None`: msgspec cannot decode a union with Raw. Null is `Raw(b"null")`."""


class AmountBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An amount, either as `usd` or as `nano`."""

    usd: str | int | float | None = None
    """As text, or as a number: JSON numbers are read as they are written, up to fifteen digits."""
    nano: int | None = None
    currency: str = "USD"
    id: str | None = None
    """The client's idempotency key: a request that repeats the id of an earlier one changes nothing."""


class GrantBody(AmountBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    account: str
    """Its id, or the e-mail of its owner."""
    days: Annotated[float, Meta(gt=0, le=3660)] | None = None
    """How long the credits last; None: the network's default."""
    memo: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] | None = None


class DepositBody(AmountBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    adapter: str = "test"
    """The payment rail of the deposit."""


class CreditBalance(msgspec.Struct, frozen=True, kw_only=True):
    """The first two fields are OpenRouter's."""

    total_credits: UsdNumber
    """All grants and deposits, less expired grants."""
    total_usage: UsdNumber
    balance_usd: str
    """The sum of `promo` and `paid`. It includes `reserved`."""
    balance_nano: int
    promo_usd: str
    """Free credits, which are spent first."""
    promo_nano: int
    promo_expires_at: float | None
    """When the next grant expires, in Unix seconds."""
    paid_usd: str
    paid_nano: int
    reserved_usd: str
    """Reserved by gateways for requests of this account."""
    reserved_nano: int
    granted_usd: str
    """All free credits ever received. The next two are totals too."""
    granted_nano: int
    deposited_usd: str
    deposited_nano: int
    expired_usd: str
    expired_nano: int


class CreditBalanceReply(msgspec.Struct, frozen=True, kw_only=True):
    data: CreditBalance


class CreditPosting(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a grant or a deposit."""

    id: str
    account: str
    posted: bool
    """False if the id was used before: nothing changed then."""
    credits: CreditBalance
    """Of the account, afterwards."""


class TreasuryBalance(msgspec.Struct, frozen=True, kw_only=True):
    """The money that pays node owners for serving free credits."""

    balance_usd: str
    balance_nano: int
    daily_budget_usd: str
    """How much of it may become payable per day (UTC)."""
    daily_budget_nano: int
    redeemed_today_usd: str
    redeemed_today_nano: int


class TreasuryReply(msgspec.Struct, frozen=True, kw_only=True):
    data: TreasuryBalance


class TreasuryPosting(msgspec.Struct, frozen=True, kw_only=True):
    """The result of funding the treasury."""

    id: str
    posted: bool
    """False if the id was used before: nothing changed then."""
    treasury: TreasuryBalance


class KeyRateLimit(msgspec.Struct, frozen=True, kw_only=True):
    requests: int
    """-1 if the key has no limit of its own; then the network's default applies."""
    interval: Literal["1m"] = "1m"


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The key of the request, with OpenRouter's fields. Amounts without a unit in their name are dollars."""

    label: str
    """The first characters of the key."""
    name: str
    usage: UsdNumber
    usage_daily: UsdNumber
    """Of the current day (UTC); the next two of the current week and month."""
    usage_weekly: UsdNumber
    usage_monthly: UsdNumber
    usage_nano: int
    limit: UsdNumberOrNull
    """The key's budget per `limit_reset`; null if it has none."""
    limit_usd: str | None
    limit_remaining: UsdNumberOrNull
    limit_reset: LimitReset | None
    is_free_tier: bool
    """Whether the account never deposited anything."""
    is_provisioning_key: bool
    """Whether the key has the scope `admin`."""
    rate_limit: KeyRateLimit
    expires_at: str | None
    """ISO 8601."""


class KeyInfoReply(msgspec.Struct, frozen=True, kw_only=True):
    data: KeyInfo
