"""Accounts, logins, sessions and the single-use tokens around them, as Postgres keeps them.

Secrets come in hashed or sealed; nothing here can tell them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import asyncpg

from sparewatt.core.ids import AccountId
from sparewatt.core.limits import ACCOUNTS_LISTED_MAX, SESSIONS_PER_ACCOUNT_MAX
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.queries import sql

Role = Literal["user", "owner", "operator"]
SignupVerdict = Literal["made", "email_taken", "invite_refused"]


@dataclass(frozen=True, slots=True)
class AccountRow:
    id: AccountId
    name: str
    role: Role
    policy: str | None
    chain_address: str | None
    created_at: dt.datetime
    closed_at: dt.datetime | None
    email: str | None


@dataclass(frozen=True, slots=True)
class NewAccount:
    """An account before it is stored, with its chain key sealed."""

    id: AccountId
    name: str
    role: Role = "user"
    chain_address: str | None = None
    chain_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class LoginRow:
    email: str
    account_id: AccountId
    password_hash: str
    closed: bool


@dataclass(frozen=True, slots=True)
class SessionRow:
    hash: bytes
    account_id: AccountId
    role: Role
    account_policy: str | None
    expires_at: dt.datetime


class _SignupRollback(Exception):
    """Take back what this transaction did; never seen outside."""

    def __init__(self, verdict: SignupVerdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class AccountStore:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    # accounts

    async def ensure_account(self, account: NewAccount) -> None:
        """Insert it unless there is one with this id."""
        await self._pool.execute("insert_account", *_account_values(account))

    async def sign_up(
        self, account: NewAccount, *, email: str, password_hash: str, invite: bytes | None
    ) -> SignupVerdict:
        """The account, its login, and the invitation used up where there is one: all or nothing."""
        try:
            async with self._pool.transaction() as connection:
                await connection.execute(sql("insert_account"), *_account_values(account))
                if not await connection.fetchval(sql("insert_login"), email, account.id, password_hash):
                    raise _SignupRollback("email_taken")  # noqa: TRY301 (raising is how a transaction is taken back)
                if invite is not None and not await connection.fetchval(sql("use_invite"), invite, account.id):
                    raise _SignupRollback("invite_refused")  # noqa: TRY301 (likewise)
        except _SignupRollback as undone:
            return undone.verdict
        return "made"

    async def find_account(self, id_or_email: str) -> AccountRow | None:
        row = await self._pool.row("find_account", id_or_email)
        return AccountRow(**dict(row.items())) if row else None

    async def list_accounts(self, *, after: AccountId | None, limit: int = ACCOUNTS_LISTED_MAX) -> list[AccountRow]:
        """In the order they were made, from the one after `after`."""
        rows = await self._pool.rows("list_accounts", after, limit)
        return [AccountRow(**dict(row.items())) for row in rows]

    async def update_account(self, account_id: AccountId, *, name: str, policy: str | None) -> None:
        await self._pool.execute("describe_account", account_id, name, policy)

    async def set_role(self, account_id: AccountId, role: Role) -> None:
        await self._pool.execute("set_role", account_id, role)

    async def make_owner(self, account_id: AccountId) -> bool:
        """Turn a user into an owner; any other role stays. Tells whether that changed anything."""
        return await self._pool.value("make_owner", account_id) is not None

    async def close_account(self, account_id: AccountId) -> None:
        """Its keys stop at the next look, its sessions end now. What it did stays in the books."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("close_account"), account_id)
            await connection.execute(sql("end_other_sessions"), account_id, b"")

    # chain keys

    async def accounts_without_chain_key(self, *, limit: int) -> list[AccountId]:
        return [AccountId(row["id"]) for row in await self._pool.rows("accounts_without_chain_key", limit)]

    async def set_chain_key(self, account_id: AccountId, *, address: str, sealed: bytes) -> None:
        await self._pool.execute("set_chain_key", account_id, address, sealed)

    async def account_at_address(self, address: str) -> AccountId | None:
        """Whose chain address this is."""
        found = await self._pool.value("account_at", address)
        return None if found is None else AccountId(found)

    async def find_chain_key(self, account_id: AccountId) -> bytes | None:
        sealed: bytes | None = await self._pool.value("find_chain_key", account_id)
        return sealed

    async def has_secret(self) -> bool:
        return await self._pool.value("network_secret") is not None

    async def secret_fingerprint(self, *, ours: bytes) -> bytes:
        """That of the network's secret; ours becomes it where there was none."""
        await self._pool.execute("insert_network_secret", ours)
        known: bytes = await self._pool.value("network_secret")
        return known

    # logins

    async def find_login(self, email: str) -> LoginRow | None:
        return _login_row(await self._pool.row("find_login", email))

    async def find_login_of(self, account_id: AccountId) -> LoginRow | None:
        return _login_row(await self._pool.row("find_login_of_account", account_id))

    async def set_password(self, account_id: AccountId, password_hash: str, *, keep_session: bytes) -> None:
        """The new password, and the end of every other session: whoever knew the old one is out."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("set_password"), account_id, password_hash)
            await connection.execute(sql("end_other_sessions"), account_id, keep_session)

    async def rehash_password(self, account_id: AccountId, password_hash: str) -> None:
        """The same password under newer parameters."""
        await self._pool.execute("set_password", account_id, password_hash)

    # sessions

    async def insert_session(self, hashed: bytes, *, account_id: AccountId, life_s: float) -> None:
        async with self._pool.transaction() as connection:
            await connection.execute(sql("insert_session"), hashed, account_id, life_s)
            await connection.execute(sql("end_oldest_sessions"), account_id, SESSIONS_PER_ACCOUNT_MAX)

    async def find_session(self, hashed: bytes) -> SessionRow | None:
        """None also when it has expired or its account is closed."""
        row = await self._pool.row("find_session", hashed)
        return SessionRow(**dict(row.items())) if row else None

    async def end_session(self, hashed: bytes) -> None:
        await self._pool.execute("end_session", hashed)

    # single-use tokens

    async def insert_reset(self, hashed: bytes, *, account_id: AccountId, life_s: float) -> dt.datetime:
        expires_at: dt.datetime = await self._pool.value("insert_reset", hashed, account_id, life_s)
        return expires_at

    async def use_reset(self, hashed: bytes, *, password_hash: str) -> AccountId | None:
        """Set the password of the account behind the token and end all its sessions. None: no such token."""
        async with self._pool.transaction() as connection:
            account_id = await connection.fetchval(sql("use_reset"), hashed)
            if account_id is None:
                return None
            await connection.execute(sql("set_password"), account_id, password_hash)
            await connection.execute(sql("end_other_sessions"), account_id, b"")
            return AccountId(account_id)

    async def insert_invite(self, hashed: bytes, *, created_by: AccountId, life_s: float) -> dt.datetime:
        expires_at: dt.datetime = await self._pool.value("insert_invite", hashed, created_by, life_s)
        return expires_at

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_sessions")
        await self._pool.execute("forget_old_resets")
        await self._pool.execute("forget_old_invites")


def _account_values(account: NewAccount) -> Sequence[object]:
    return (account.id, account.name, account.role, account.chain_address, account.chain_key)


def _login_row(row: asyncpg.Record | None) -> LoginRow | None:
    return LoginRow(**dict(row.items())) if row else None
