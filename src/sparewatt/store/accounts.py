"""Accounts, logins, sessions and single-use tokens in Postgres. Secrets come in hashed or sealed, never in clear."""

from __future__ import annotations

import datetime as dt
from dataclasses import astuple, dataclass
from typing import Literal

from sparewatt.core.ids import AccountId
from sparewatt.store.connection_pool import Store, sql

ACCOUNTS_LISTED_MAX = 1_000
"""Accounts on one page of the operator's list."""
SESSIONS_PER_ACCOUNT_MAX = 50
"""Browsers that are logged in at once; the oldest session ends first."""
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
    """In the order of the columns of `insert_account`."""

    id: AccountId
    name: str
    role: Role = "user"
    chain_address: str | None = None
    chain_key: bytes | None = None
    """Sealed."""


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
    """Rolls the transaction of a sign-up back; never leaves this module."""

    def __init__(self, verdict: SignupVerdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class AccountStore(Store):
    # accounts

    async def ensure_account(self, account: NewAccount) -> None:
        """Insert it unless there is one with this id."""
        await self._pool.execute("insert_account", *astuple(account))

    async def sign_up(
        self, account: NewAccount, *, email: str, password_hash: str, invite: bytes | None
    ) -> SignupVerdict:
        """Insert the account and its login, and use the invitation up if there is one: all or nothing."""
        try:
            async with self._pool.transaction() as connection:
                await connection.execute(sql("insert_account"), *astuple(account))
                if not await connection.fetchval(sql("insert_login"), email, account.id, password_hash):
                    raise _SignupRollback("email_taken")  # noqa: TRY301 (raising is how a transaction is rolled back)
                if invite is not None and not await connection.fetchval(sql("use_invite"), invite, account.id):
                    raise _SignupRollback("invite_refused")  # noqa: TRY301 (likewise)
        except _SignupRollback as rollback:
            return rollback.verdict
        return "made"

    async def find_account(self, id_or_email: str) -> AccountRow | None:
        return await self._pool.row_as(AccountRow, "find_account", id_or_email)

    async def list_accounts(self, *, after: AccountId | None, limit: int = ACCOUNTS_LISTED_MAX) -> list[AccountRow]:
        """In order of creation, from the one after `after`."""
        return await self._pool.rows_as(AccountRow, "list_accounts", after, limit)

    async def update_account(self, account_id: AccountId, *, name: str, policy: str | None) -> None:
        await self._pool.execute("describe_account", account_id, name, policy)

    async def set_role(self, account_id: AccountId, role: Role) -> None:
        await self._pool.execute("set_role", account_id, role)

    async def make_owner(self, account_id: AccountId) -> bool:
        """Turn a user into an owner; any other role stays. Returns whether that changed anything."""
        return await self._pool.value("make_owner", account_id) is not None

    async def close_account(self, account_id: AccountId) -> None:
        """End its sessions now, and its keys at the next sync. Its jobs and postings stay in the ledger."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("close_account"), account_id)
            await connection.execute(sql("end_other_sessions"), account_id, b"")

    # chain keys

    async def accounts_without_chain_key(self, *, limit: int) -> list[AccountId]:
        return [AccountId(row["id"]) for row in await self._pool.rows("accounts_without_chain_key", limit)]

    async def set_chain_key(self, account_id: AccountId, *, address: str, sealed: bytes) -> None:
        await self._pool.execute("set_chain_key", account_id, address, sealed)

    async def account_at_address(self, address: str) -> AccountId | None:
        account_id = await self._pool.value("account_at", address)
        return None if account_id is None else AccountId(account_id)

    async def find_chain_key_at(self, account_id: AccountId, address: str) -> bytes | None:
        """The sealed key of an address that the account has, or had before."""
        sealed: bytes | None = await self._pool.value("find_chain_key_at", account_id, address)
        return sealed

    async def former_addresses(self, account_id: AccountId) -> list[str]:
        """Those whose keys the network keeps, the last one first."""
        return [row["address"] for row in await self._pool.rows("former_addresses", account_id)]

    async def set_own_address(self, account_id: AccountId, *, held: str, own: str) -> bool:
        """Replace the held address by one of the account's own. The held key is kept. False if it has none."""
        async with self._pool.transaction() as connection:
            if await connection.fetchval(sql("keep_former_key"), account_id, held) is None:
                return False
            await connection.execute(sql("set_own_address"), account_id, own)
        return True

    async def has_secret(self) -> bool:
        return await self._pool.value("network_secret") is not None

    async def secret_fingerprint(self, *, ours: bytes) -> bytes:
        """The fingerprint of the network's secret. If there is none yet, ours is stored."""
        await self._pool.execute("insert_network_secret", ours)
        fingerprint: bytes = await self._pool.value("network_secret")
        return fingerprint

    # logins

    async def find_login(self, email: str) -> LoginRow | None:
        return await self._pool.row_as(LoginRow, "find_login", email)

    async def find_login_of(self, account_id: AccountId) -> LoginRow | None:
        return await self._pool.row_as(LoginRow, "find_login_of_account", account_id)

    async def set_password(self, account_id: AccountId, password_hash: str, *, keep_session: bytes) -> None:
        """Store a new password and end every other session."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("set_password"), account_id, password_hash)
            await connection.execute(sql("end_other_sessions"), account_id, keep_session)

    async def rehash_password(self, account_id: AccountId, password_hash: str) -> None:
        """The same password under newer parameters: no session ends."""
        await self._pool.execute("set_password", account_id, password_hash)

    # sessions

    async def insert_session(self, hashed: bytes, *, account_id: AccountId, life_s: float) -> None:
        async with self._pool.transaction() as connection:
            await connection.execute(sql("insert_session"), hashed, account_id, life_s)
            await connection.execute(sql("end_oldest_sessions"), account_id, SESSIONS_PER_ACCOUNT_MAX)

    async def find_session(self, hashed: bytes) -> SessionRow | None:
        """None also if it has expired or its account is closed."""
        return await self._pool.row_as(SessionRow, "find_session", hashed)

    async def end_session(self, hashed: bytes) -> None:
        await self._pool.execute("end_session", hashed)

    # single-use tokens

    async def insert_reset(self, hashed: bytes, *, account_id: AccountId, life_s: float) -> dt.datetime:
        expires_at: dt.datetime = await self._pool.value("insert_reset", hashed, account_id, life_s)
        return expires_at

    async def use_reset(self, hashed: bytes, *, password_hash: str) -> AccountId | None:
        """Set the password of the token's account and end all its sessions. None if there is no such token."""
        async with self._pool.transaction() as connection:
            account_id = await connection.fetchval(sql("use_reset"), hashed)
            if account_id is None:
                return None
            await connection.execute(sql("set_password"), account_id, password_hash)
            await connection.execute(sql("end_other_sessions"), account_id, b"")
            return AccountId(account_id)

    async def insert_login_link(self, hashed: bytes, *, account_id: AccountId, life_s: float) -> dt.datetime:
        expires_at: dt.datetime = await self._pool.value("insert_login_link", hashed, account_id, life_s)
        return expires_at

    async def use_login_link(self, hashed: bytes) -> AccountId | None:
        """Whose link it is; it works once. None if it is unknown, used or expired, or its account closed."""
        account_id = await self._pool.value("use_login_link", hashed)
        return None if account_id is None else AccountId(account_id)

    async def insert_invite(self, hashed: bytes, *, created_by: AccountId, life_s: float) -> dt.datetime:
        expires_at: dt.datetime = await self._pool.value("insert_invite", hashed, created_by, life_s)
        return expires_at

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_sessions")
        await self._pool.execute("forget_old_resets")
        await self._pool.execute("forget_old_login_links")
        await self._pool.execute("forget_old_invites")
