"""Accounts, sessions, passwords, API keys, invitations and join tokens: `/v1/me`, `/v1/accounts`, `/v1/keys`, …

A client sends `NewKey`, `NewJoinToken`, and the types whose names end in `Body`, `Change` or `Terms`; these refuse
unknown fields. All others are replies. Times named `…_at` are Unix seconds.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sparewatt.core.limits import JOIN_TOKEN_LIFE_S

RoleName = Literal["user", "owner", "operator"]
ScopeName = Literal["inference", "lease", "node", "admin"]
BudgetPeriod = Literal["day", "week", "month"]

KEY_LIFE_S_MAX = 10 * 366 * 24 * 3600
"""Ten years: a key that should outlive them has no expiry."""
JOIN_TOKEN_LIFE_S_MAX = 30 * 24 * 3600
"""A month: a leaked token is enough to register a node, so it must not stay valid for long."""

PolicyJson = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": ["object", "string", "null"]})]
"""A policy as it was written: an object of the vocabulary, or a query as text. `null` is no policy.

It is not `Raw | None`: msgspec decodes such a union as `None` only.
"""


# accounts


class AccountInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    email: str | None
    """None for an account without a login, such as the network's own."""
    role: RoleName
    policy: PolicyJson
    chain_address: str | None
    created_at: float
    closed_at: float | None


class AccountList(msgspec.Struct, frozen=True, kw_only=True):
    """One page, the oldest account first."""

    object: Literal["list"] = "list"
    data: list[AccountInfo]


class OwnAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's account after a change."""

    account: AccountInfo


class AccountChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field that is left out keeps its value. The policy `null` removes the policy."""

    name: str | UnsetType = UNSET
    policy: PolicyJson | UnsetType = UNSET


class AccountClosureBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    password: str


class RoleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: RoleName


class OneTimeToken(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation or a password reset token. The gateway stores only its hash, so it is shown only here."""

    token: str
    expires_at: float


# sessions and passwords


class SignupBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: str
    password: str
    name: str = ""
    """If it is empty, the account is named by the part of the e-mail address before the `@`."""
    invite: str | None = None
    """An invitation, where the network requires one."""


class LoginBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: str
    password: str


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """The session's token itself is in the cookie that comes with this reply."""

    account: AccountInfo
    csrf_token: str
    """For the header `x-sparewatt-csrf` of every request by cookie that changes something."""
    notice: str | UnsetType = UNSET
    """What a new account should know, e.g. that it got no free credits."""


class LoginLink(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    """Opens the page as the account that asked, once. The secret is in its fragment, which browsers do not send."""
    expires_at: float


class LoginLinkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: Annotated[str, Meta(max_length=200)]
    """The fragment of the link."""


class LogoutResult(msgspec.Struct, frozen=True, kw_only=True):
    logged_out: bool
    """False for a request by API key, which has no session to end."""


class PasswordChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    current_password: str
    password: str
    """The new one."""


class PasswordResetRequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: str


class PasswordResetBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: str
    password: str
    """The new one."""


class PasswordChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    changed: bool = True


class PasswordResetRequestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The same whether or not an account has this e-mail address."""

    requested: bool = True


# API keys


class BudgetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How much a key may spend in each period, once exactly in nano-dollars and once as a decimal string."""

    nano: int
    usd: str
    period: BudgetPeriod


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without the key itself. A limit of None is none of the key's own."""

    id: str
    account_id: str
    name: str
    prefix: str
    """The first characters of the key, by which its holder recognizes it."""
    scopes: tuple[ScopeName, ...]
    policy: PolicyJson
    budget: BudgetInfo | None
    requests_per_min: int | None
    tokens_per_min: int | None
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    """Written in the background, so it can be some seconds late."""
    revoked_at: float | None


class CreatedKey(ApiKey, frozen=True, kw_only=True):
    key: str
    """The key itself. The gateway stores only its hash, so it is shown only here."""

    def __repr__(self) -> str:
        """Keep the key out of logs and tracebacks."""
        return f"CreatedKey({self.id})"


class RevokedKey(ApiKey, frozen=True, kw_only=True):
    revoked: bool = True


class ApiKeyList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ApiKey]


class BudgetTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An amount for each period: either `usd`, in dollars, or `nano`, in nano-dollars."""

    period: BudgetPeriod
    usd: Decimal | None = None
    nano: int | None = None


class KeyChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field that is left out keeps its value; null removes a limit."""

    name: str | UnsetType = UNSET
    policy: PolicyJson | UnsetType = UNSET
    budget: BudgetTerms | UnsetType | None = UNSET
    expires_in_s: Annotated[float, Meta(gt=0, le=KEY_LIFE_S_MAX)] | UnsetType | None = UNSET
    expires_at: float | UnsetType | None = UNSET
    requests_per_min: int | UnsetType | None = UNSET
    tokens_per_min: int | UnsetType | None = UNSET


class NewKey(KeyChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name and limits of a new key, and what it may do."""

    scopes: tuple[str, ...] = ("inference",)
    """Of `ScopeName`; the gateway refuses others with a text of its own."""


class PrincipalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The account that a request acts for, and what the request's key or session may do."""

    account: AccountInfo
    role: RoleName
    scopes: tuple[ScopeName, ...]
    key: ApiKey | None
    """None for a session."""
    csrf_token: str | UnsetType = UNSET
    """Only for a session."""


# join tokens


class NewJoinToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    life_s: Annotated[float, Meta(gt=0, le=JOIN_TOKEN_LIFE_S_MAX)] = JOIN_TOKEN_LIFE_S
    lease: str | None = None
    """For a node in this lease of yours: it leaves the network when the lease ends."""


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    expires_at: float
    join_line: str | None
    """The shell command that installs Sparewatt and joins with this token; None where the gateway serves no wheel."""
