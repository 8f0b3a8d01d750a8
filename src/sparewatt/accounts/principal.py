"""The authenticated principal of a request, an account by its API key or browser session, and its authorization.

A key may do what its scopes say, with things of its own account. Operating the network needs both the role `operator`
and the scope `admin`.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from sparewatt.core.errors import NotAllowed, OperatorsOnly
from sparewatt.core.ids import AccountId, KeyId
from sparewatt.store.accounts import Role, SessionRow
from sparewatt.store.database import KeyRow

Scope = Literal["inference", "lease", "node", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)


class Principal(msgspec.Struct, frozen=True):
    """Exactly one of `key` and `session` is set."""

    account_id: AccountId
    role: Role
    scopes: tuple[str, ...]
    key: KeyRow | None = None
    session: SessionRow | None = None

    @property
    def key_id(self) -> KeyId:
        """What a job is stored under: the key, or the account's id if a browser submitted it."""
        return self.key.id if self.key is not None else KeyId(self.account_id)

    @property
    def is_operator(self) -> bool:
        return self.role == "operator" and "admin" in self.scopes

    @property
    def account_filter(self) -> AccountId | None:
        """The account whose things it may see and change; None for an operator, who may all."""
        return None if self.is_operator else self.account_id


def principal_from_key(key: KeyRow) -> Principal:
    return Principal(key.account_id, key.role, key.scopes, key=key)


def principal_from_session(session: SessionRow) -> Principal:
    """A session has every scope."""
    return Principal(session.account_id, session.role, SCOPES, session=session)


def require_scope(principal: Principal, scope: Scope) -> None:
    if scope not in principal.scopes:
        subject = f"The key {principal.key.prefix}…" if principal.key is not None else "This session"
        scopes = ", ".join(map(repr, principal.scopes)) or "none"
        raise NotAllowed(f"{subject} may not do this: it needs the scope {scope!r}, it has {scopes}.")


def require_operator(principal: Principal) -> None:
    require_scope(principal, "admin")
    if principal.role != "operator":
        raise OperatorsOnly("Only operators of this network may do this.")
