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


class ChainHoldingsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an account has on the chain, by final events, and what of its credits waits for the chain."""

    address: str | None
    is_held: bool
    """Whether the network has the key of the address."""
    escrow_usd: str
    """Deposits of its leases."""
    escrow_nano: int
    bonds_usd: str
    """Bonds of its nodes as providers."""
    bonds_nano: int
    owed_usd: str
    """What contracts owe it: `POST /v1/credits/collect` brings it back to credits."""
    owed_nano: int
    wallet_usd: str
    """Tokens at its addresses."""
    wallet_nano: int
    held_usd: str
    """Held for leases and bonds that were asked for. It is in `reserved` too, as is the next."""
    held_nano: int
    exits_usd: str
    """Held for withdrawals that are under way."""
    exits_nano: int
    exits_ready_at: float | None = None
    """When the contract pays them, in Unix seconds of the chain. None if it does not have the request yet."""


class CreditBalance(msgspec.Struct, frozen=True, kw_only=True):
    """The first two fields are OpenRouter's."""

    total_credits: UsdNumber
    """All grants and deposits, less what expired or left for the chain. Less `total_usage` it is the balance."""
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
    """What cannot be spent: reserved by gateways for requests, held for leases and bonds, or being withdrawn."""
    reserved_nano: int
    granted_usd: str
    """All free credits ever received. The next two are totals too."""
    granted_nano: int
    deposited_usd: str
    deposited_nano: int
    expired_usd: str
    expired_nano: int
    chain: ChainHoldingsInfo | None = None
    """None on a network without a chain."""


class WithdrawBody(AmountBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    to: Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}$")] | None = None
    """Where the tokens go; by default they stay at the account's address."""


class Withdrawal(msgspec.Struct, frozen=True, kw_only=True):
    """An exit of credits, which the contract has and will pay."""

    id: str
    usd: str
    nano: int
    """As far as the contract knows it to be unspent: it may be less than was asked for."""
    ready_at: float
    """When it is paid, in Unix seconds of the chain."""
    to: str


class CollectBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: str | None = None
    """The client's idempotency key."""


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tx: str | None
    """The last transaction; None if there was nothing to bring back."""


class OwnAddressBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    address: Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}$")]
    signature: Annotated[str, Meta(pattern="^0x([0-9a-fA-F]{130})?$")] = "0x"
    """By that address, of the text that `GET /v1/me/address` shows (EIP-191, as wallets sign texts)."""


class OwnAddress(msgspec.Struct, frozen=True, kw_only=True):
    address: str | None
    is_held: bool
    """Whether the network has its key."""
    to_sign: str | None = None
    """With `?address=`: what that address has to sign to become the account's own."""


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
