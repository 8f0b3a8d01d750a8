"""Accounts of people: sign-up, login, links that log in, password change and reset, invitations, roles, closing.

Routes decide which principal may call what; `public_rate_limits.py` decides how often.
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
from sparewatt.core.rng import Rng
from sparewatt.store.accounts import AccountRow, AccountStore, LoginRow, NewAccount, Role

SignupMode = Literal["open", "invite", "closed"]
RESET_PREFIX = "reset-sw-"
INVITE_PREFIX = "invite-sw-"
RESET_LIFE_S = 3600.0
"""Time enough to read a mail."""
LINK_PREFIX = "link-sw-"
LINK_LIFE_S = 600.0
"""Time enough to click; it stands in a terminal, and in a browser's history."""
INVITE_LIFE_S = 7 * 24 * 3600.0
EMAIL_CHARS_MAX = 254
"""The longest address that SMTP can carry (RFC 5321)."""
_EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+")


class SignupHook(Protocol):
    """Called after a sign-up, when the account is stored."""

    async def on_signup(self, account_id: AccountId, *, address: str) -> str | None:
        """Returns a notice for the new user, if there is something unexpected to say."""
        ...


@dataclass(frozen=True, slots=True)
class Signup:
    """What a new user enters. It is never logged."""

    email: str
    password: str
    name: str = ""
    invite: str | None = None


def normalize_email(text: str) -> str:
    """In lower case, without surrounding space. Raises InvalidField."""
    email = text.strip().lower()
    if len(email) > EMAIL_CHARS_MAX or not _EMAIL.fullmatch(email):
        raise InvalidField("This is not an e-mail address.", param="email")
    return email


@dataclass(frozen=True, slots=True)
class AccountService:
    store: AccountStore
    passwords: Passwords
    custody: Custody
    rng: Rng

    async def sign_up(self, signup: Signup, *, mode: SignupMode) -> AccountRow:
        """Make an account with a login and a chain key. Raises SignupRefused, EmailTaken or InvalidField."""
        _refuse_uninvited(signup, mode)
        email, name = normalize_email(signup.email), signup.name or signup.email.strip().partition("@")[0][:100]
        check_name(name)
        check_password(signup.password, email=email)
        account_id = AccountId(new_id("acc", rng=self.rng))
        chain = self.custody.make(account_id)
        verdict = await self.store.sign_up(
            NewAccount(account_id, name, chain_address=chain.address, chain_key=chain.sealed),
            email=email,
            password_hash=await self.passwords.hash(signup.password),
            invite=hash_secret(signup.invite or "") if mode == "invite" else None,
        )
        if verdict == "email_taken":
            raise EmailTaken("There is an account with this e-mail. Log in, or reset its password.", param="email")
        if verdict == "invite_refused":
            raise SignupRefused("This invitation is not known here, was used, or has expired.", param="invite")
        return await self.get(account_id)

    async def log_in(self, email: str, password: str) -> AccountId:
        """Raises LoginFailed. An unknown e-mail and a wrong password look the same, and take the same time."""
        login = await self._find_login(email)
        if not await self.passwords.verify(password, login.password_hash if login else None) or login is None:
            raise LoginFailed("E-mail and password do not belong together.")
        if login.closed:
            raise LoginFailed("This account is closed. Ask the network's operator.")
        if self.passwords.is_outdated(login.password_hash):
            await self.store.rehash_password(login.account_id, await self.passwords.hash(password))
        return login.account_id

    async def _find_login(self, email: str) -> LoginRow | None:
        try:
            return await self.store.find_login(normalize_email(email))
        except InvalidField:
            return None

    async def change_password(self, account_id: AccountId, *, current: str, new: str, keep_session: bytes) -> None:
        """Ends every other session. API keys stay valid: they are revoked one by one."""
        login = await self._require_login(account_id)
        if not await self.passwords.verify(current, login.password_hash):
            raise LoginFailed("The current password is wrong.", param="current_password")
        check_password(new, email=login.email)
        await self.store.set_password(account_id, await self.passwords.hash(new), keep_session=keep_session)

    async def make_reset_token(self, account_id: AccountId) -> tuple[str, dt.datetime]:
        """A token that sets this account's password once. Raises NotAllowed without a login."""
        await self._require_login(account_id)
        token = RESET_PREFIX + self.rng.randbytes(20).hex()
        return token, await self.store.insert_reset(hash_secret(token), account_id=account_id, life_s=RESET_LIFE_S)

    async def _require_login(self, account_id: AccountId) -> LoginRow:
        login = await self.store.find_login_of(account_id)
        if login is None:
            raise NotAllowed("This account has no login, so it has no password.")
        return login

    async def make_reset_token_for_email(self, email: str) -> str | None:
        """None if no account has this e-mail, or it is closed."""
        login = await self.store.find_login(email)
        return None if login is None or login.closed else (await self.make_reset_token(login.account_id))[0]

    async def reset_password(self, token: str, password: str) -> AccountId:
        """Uses up the token and ends every session. Raises LoginFailed."""
        check_password(password)
        password_hash = await self.passwords.hash(password)
        account_id = await self.store.use_reset(hash_secret(token.strip()), password_hash=password_hash)
        if account_id is None:
            raise LoginFailed("This reset token is not known here, was used, or has expired. Ask for a new one.")
        return account_id

    async def make_login_link(self, account_id: AccountId) -> tuple[str, dt.datetime]:
        """A token that opens the page as this account, once. It gives no more than the key that asks for it."""
        token = LINK_PREFIX + self.rng.randbytes(20).hex()
        return token, await self.store.insert_login_link(hash_secret(token), account_id=account_id, life_s=LINK_LIFE_S)

    async def use_login_link(self, token: str) -> AccountId:
        """Uses up the token. Raises LoginFailed."""
        account_id = await self.store.use_login_link(hash_secret(token.strip()))
        if account_id is None:
            raise LoginFailed(
                "This link was used, or has expired, or is not of this network. 'sparewatt dashboard' makes a new one."
            )
        return account_id

    # what accounts and operators see and change

    async def get(self, id_or_email: str) -> AccountRow:
        name = id_or_email.strip().lower()
        row = await self.store.find_account(name) if name.isprintable() else None
        if row is None:
            raise AccountNotFound(f"There is no account {id_or_email[:100]!r}. 'sparewatt accounts list' shows them.")
        return row

    async def update(self, account_id: AccountId, *, name: str, policy: str | None) -> AccountRow:
        check_name(name)
        await self.store.update_account(account_id, name=name, policy=policy)
        return await self.get(account_id)

    async def set_role(self, row: AccountRow, role: Role, *, by: AccountId) -> AccountRow:
        _refuse_own_or_network(row.id, by=by)
        await self.store.set_role(row.id, role)
        return await self.get(row.id)

    async def close(self, row: AccountRow, *, by: AccountId) -> AccountRow:
        """Its keys, sessions and nodes stop within seconds. A second time changes nothing."""
        _refuse_own_or_network(row.id, by=by)
        await self.store.close_account(row.id)
        return await self.get(row.id)

    async def close_own(self, row: AccountRow, *, password: str) -> AccountRow:
        """For good. Raises NotAllowed for operators: a network must not lose its last one."""
        login = await self.store.find_login_of(row.id)
        if login is None or row.role == "operator":
            raise NotAllowed("This account can only be closed by another operator.")
        if not await self.passwords.verify(password, login.password_hash):
            raise LoginFailed("The password is wrong.", param="password")
        await self.store.close_account(row.id)
        return await self.get(row.id)

    async def invite(self, *, by: AccountId) -> tuple[str, dt.datetime]:
        token = INVITE_PREFIX + self.rng.randbytes(20).hex()
        return token, await self.store.insert_invite(hash_secret(token), created_by=by, life_s=INVITE_LIFE_S)


def _refuse_uninvited(signup: Signup, mode: SignupMode) -> None:
    if mode == "closed":
        raise SignupRefused("This network takes no sign-ups. Ask its operator for an account.")
    if mode == "invite" and not signup.invite:
        raise SignupRefused("Signing up here needs an invitation. Ask the network's operator.", param="invite")


def _refuse_own_or_network(account_id: AccountId, *, by: AccountId) -> None:
    """An operator must not lock himself out, and the network's own account stays."""
    if account_id in (by, NETWORK_ACCOUNT):
        raise NotAllowed("Neither your own account nor the network's can be closed or given another role.")
