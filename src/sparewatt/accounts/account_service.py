"""People: signing up, logging in, changing and resetting a password, and what operators do to accounts.

Who may call what is decided by the routes; how often, by `doors.py`.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Literal, Protocol

from sparewatt.accounts.custody import Custody
from sparewatt.accounts.keys import check_name, hash_secret
from sparewatt.accounts.passwords import Passwords, check_password
from sparewatt.core.errors import AccountNotFound, EmailTaken, InvalidField, LoginFailed, NotAllowed, SignupRefused
from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId, new_id
from sparewatt.core.limits import EMAIL_CHARS_MAX, INVITE_LIFE_S, PASSWORD_RESET_LIFE_S
from sparewatt.core.rng import Rng
from sparewatt.store.accounts import AccountRow, AccountStore, LoginRow, NewAccount, Role

SignupMode = Literal["open", "invite", "closed"]
RESET_PREFIX = "reset-sw-"
INVITE_PREFIX = "invite-sw-"
_EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+")


class SignupHook(Protocol):
    """What else happens when somebody signs up; the account is stored already."""

    async def on_signup(self, account_id: AccountId, *, address: str) -> str | None:
        """What they should hear, if it is not as they may expect."""
        ...


class NoSignupHook:
    async def on_signup(self, account_id: AccountId, *, address: str) -> str | None:
        """No gifts here."""


@dataclass(frozen=True, slots=True)
class Signup:
    """Who wants to join. Never logged, never shown."""

    email: str
    password: str
    name: str = ""
    invite: str | None = None


def normalize_email(text: str) -> str:
    """Lower case, without space around it. Raises InvalidField."""
    email = text.strip().lower()
    if len(email) > EMAIL_CHARS_MAX or not _EMAIL.fullmatch(email):
        raise InvalidField("This is not an e-mail address.", param="email")
    return email


class AccountService:
    def __init__(self, store: AccountStore, *, passwords: Passwords, custody: Custody, rng: Rng) -> None:
        self._store = store
        self._passwords = passwords
        self._custody = custody
        self._rng = rng

    async def sign_up(self, wanted: Signup, *, mode: SignupMode) -> AccountRow:
        """A new account with its login and chain key. Raises SignupRefused, EmailTaken or InvalidField."""
        _refuse_uninvited(wanted, mode)
        email, name = normalize_email(wanted.email), wanted.name or wanted.email.strip().partition("@")[0][:100]
        check_name(name)
        check_password(wanted.password, email=email)
        account_id = AccountId(new_id("acc", rng=self._rng))
        chain = self._custody.make(account_id)
        verdict = await self._store.sign_up(
            NewAccount(account_id, name, chain_address=chain.address, chain_key=chain.sealed),
            email=email,
            password_hash=await self._passwords.hash(wanted.password),
            invite=hash_secret(wanted.invite or "") if mode == "invite" else None,
        )
        if verdict == "email_taken":
            raise EmailTaken("There is an account with this e-mail. Log in, or reset its password.", param="email")
        if verdict == "invite_refused":
            raise SignupRefused("This invitation is not known here, was used, or has expired.", param="invite")
        return await self.get(account_id)

    async def log_in(self, email: str, password: str) -> AccountId:
        """Whose e-mail and password these are. An unknown e-mail and a wrong password look the same, also in time."""
        login = await self._find_login(email)
        if not await self._passwords.verify(password, login.password_hash if login else None) or login is None:
            raise LoginFailed("E-mail and password do not belong together.")
        _refuse_closed(login)
        if self._passwords.is_outdated(login.password_hash):
            await self._store.rehash_password(login.account_id, await self._passwords.hash(password))
        return login.account_id

    async def _find_login(self, email: str) -> LoginRow | None:
        try:
            return await self._store.find_login(normalize_email(email))
        except InvalidField:
            return None

    async def change_password(self, account_id: AccountId, *, current: str, new: str, keep_session: bytes) -> None:
        """Every other session ends. Keys go on: they are revoked one by one."""
        login = await self._store.find_login_of(account_id)
        if login is None:
            raise NotAllowed("This account has no login, so it has no password.")
        if not await self._passwords.verify(current, login.password_hash):
            raise LoginFailed("The current password is wrong.", param="current_password")
        check_password(new, email=login.email)
        await self._store.set_password(account_id, await self._passwords.hash(new), keep_session=keep_session)

    async def make_reset_token(self, account_id: AccountId) -> tuple[str, dt.datetime]:
        """A token with which the password of this account can be set once. Raises NotAllowed without a login."""
        if await self._store.find_login_of(account_id) is None:
            raise NotAllowed("This account has no login, so it has no password.")
        token = RESET_PREFIX + self._rng.randbytes(20).hex()
        expires_at = await self._store.insert_reset(
            hash_secret(token), account_id=account_id, life_s=PASSWORD_RESET_LIFE_S
        )
        return token, expires_at

    async def make_reset_token_for_email(self, email: str) -> str | None:
        """As `make_reset`, for whoever has this e-mail; None if nobody has, or the account is closed."""
        login = await self._store.find_login(email)
        return None if login is None or login.closed else (await self.make_reset_token(login.account_id))[0]

    async def reset_password(self, token: str, password: str) -> AccountId:
        """Use the token up. Every session ends."""
        check_password(password)
        password_hash = await self._passwords.hash(password)
        account_id = await self._store.use_reset(hash_secret(token.strip()), password_hash=password_hash)
        if account_id is None:
            raise LoginFailed("This reset token is not known here, was used, or has expired. Ask for a new one.")
        return account_id

    # what an account and an operator see and change

    async def get(self, id_or_email: str) -> AccountRow:
        wanted = id_or_email.strip().lower()
        row = await self._store.find_account(wanted) if wanted.isprintable() else None
        if row is None:
            raise AccountNotFound(f"There is no account {id_or_email[:100]!r}. 'sparewatt accounts list' shows them.")
        return row

    async def update(self, account_id: AccountId, *, name: str, policy: str | None) -> AccountRow:
        check_name(name)
        await self._store.update_account(account_id, name=name, policy=policy)
        return await self.get(account_id)

    async def set_role(self, row: AccountRow, role: Role, *, by: AccountId) -> AccountRow:
        _refuse_own_or_network(row.id, by=by)
        await self._store.set_role(row.id, role)
        return await self.get(row.id)

    async def close(self, row: AccountRow, *, by: AccountId) -> AccountRow:
        """Its keys, sessions and nodes stop within seconds. Twice changes nothing."""
        _refuse_own_or_network(row.id, by=by)
        await self._store.close_account(row.id)
        return await self.get(row.id)

    async def close_own(self, row: AccountRow, *, password: str) -> AccountRow:
        """By whoever has it, for good. Raises NotAllowed for operators, without whom a network might be left alone."""
        login = await self._store.find_login_of(row.id)
        if login is None or row.role == "operator":
            raise NotAllowed("This account can only be closed by another operator.")
        if not await self._passwords.verify(password, login.password_hash):
            raise LoginFailed("The password is wrong.", param="password")
        await self._store.close_account(row.id)
        return await self.get(row.id)

    async def invite(self, *, by: AccountId) -> tuple[str, dt.datetime]:
        token = INVITE_PREFIX + self._rng.randbytes(20).hex()
        return token, await self._store.insert_invite(hash_secret(token), created_by=by, life_s=INVITE_LIFE_S)


def _refuse_uninvited(wanted: Signup, mode: SignupMode) -> None:
    if mode == "closed":
        raise SignupRefused("This network takes no sign-ups. Ask its operator for an account.")
    if mode == "invite" and not wanted.invite:
        raise SignupRefused("Signing up here needs an invitation. Ask the network's operator.", param="invite")


def _refuse_closed(login: LoginRow) -> None:
    if login.closed:
        raise LoginFailed("This account is closed. Ask the network's operator.")


def _refuse_own_or_network(account_id: AccountId, *, by: AccountId) -> None:
    """Nobody takes away their own place, and the network's own account stays."""
    if account_id in (by, NETWORK_ACCOUNT):
        raise NotAllowed("Neither your own account nor the network's can be closed or given another role.")
