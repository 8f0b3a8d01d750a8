"""Who is asking: an account, by one of its keys or by a browser's session. And the one rule of what it may do.

A key may do what its scopes say, and only with things of its own account. Running the network takes the role of an
operator and the scope `admin`, both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from sparewatt.core.errors import NotAllowed, OperatorsOnly
from sparewatt.core.ids import AccountId, KeyId
from sparewatt.store.accounts import Role, SessionRow
from sparewatt.store.database import KeyRow

Scope = Literal["inference", "lease", "node", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)


class Principal(msgspec.Struct, frozen=True):
    """Exactly one of `key` and `session` is there."""

    account_id: AccountId
    role: Role
    scopes: tuple[str, ...]
    key: KeyRow | None = None
    session: SessionRow | None = None

    @property
    def key_id(self) -> KeyId:
        """By which a job remembers who asked; what a browser asks goes by its account."""
        return self.key.id if self.key is not None else KeyId(self.account_id)

    @property
    def is_operator(self) -> bool:
        return self.role == "operator" and "admin" in self.scopes

    @property
    def account_filter(self) -> AccountId | None:
        """Whose things it may see and change: its own, or (None) everybody's."""
        return None if self.is_operator else self.account_id


def principal_from_key(key: KeyRow) -> Principal:
    return Principal(key.account_id, key.role, key.scopes, key=key)


def principal_from_session(session: SessionRow) -> Principal:
    """Somebody who logged in may do all that the account may."""
    return Principal(session.account_id, session.role, SCOPES, session=session)


def require_scope(who: Principal, scope: Scope) -> None:
    if scope not in who.scopes:
        raise NotAllowed(
            f"{_describe(who)} may not do this: it needs the scope {scope!r}, it has {_list_scopes(who.scopes)}."
        )


def require_operator(who: Principal) -> None:
    require_scope(who, "admin")
    if who.role != "operator":
        raise OperatorsOnly("Only operators of this network may do this.")


def _describe(who: Principal) -> str:
    return f"The key {who.key.prefix}…" if who.key is not None else "This session"


def _list_scopes(scopes: Sequence[str]) -> str:
    return ", ".join(repr(scope) for scope in scopes) or "none"
