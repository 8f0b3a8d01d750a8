"""/v1/me: the caller's own account. /v1/accounts and /v1/invites: all accounts, for operators of the network only.

/v1/join-tokens: with such a token one node joins the network, for the caller's account.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from msgspec import UNSET, UnsetType

from sparewatt.accounts.account_service import AccountService
from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.accounts.keys import KeyService
from sparewatt.accounts.login_limits import LoginLimiter
from sparewatt.accounts.principal import Principal
from sparewatt.accounts.sessions import Sessions, csrf_token
from sparewatt.api.accounts.keys import describe_key, policy_json, policy_text, scope_names
from sparewatt.api.endpoint import endpoint
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId
from sparewatt.edge.auth import cookie_name
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.accounts import (
    AccountChange,
    AccountClosureBody,
    AccountInfo,
    AccountList,
    JoinToken,
    NewJoinToken,
    OneTimeToken,
    OwnAccount,
    PrincipalInfo,
    RoleChange,
)
from sparewatt.store.accounts import AccountRow


class AccountPages(Protocol):
    """Implemented by `AccountStore`."""

    async def list_accounts(self, *, after: AccountId | None) -> list[AccountRow]: ...


@dataclass(slots=True, kw_only=True)
class AccountCaches:
    """What a gateway caches of accounts: sessions, and keys with their role and policy."""

    sessions: Sessions
    keys: KeyService

    async def invalidate(self, account_id: AccountId) -> None:
        """After a change of the account: in this gateway at once, in other gateways within a second or two."""
        self.sessions.invalidate(account_id)
        await self.keys.on_account_changed()


@dataclass(slots=True, kw_only=True)
class OwnAccountEndpoints:
    accounts: AccountService
    keys: KeyService
    caches: AccountCaches
    login_limiter: LoginLimiter

    @endpoint("GET /v1/me", access="identified")
    async def show_me(self, request: web.Request, principal: Principal) -> PrincipalInfo:
        """Show the caller's account, and what its key or session may do."""
        row = await self.accounts.get(principal.account_id)
        cookie = cookie_name(context_of(request).settings)
        token = request.cookies.get(cookie) if principal.session is not None else None
        return PrincipalInfo(
            account=describe_account(row),
            role=principal.role,
            scopes=scope_names(principal.scopes),
            key=describe_key(principal.key) if principal.key is not None else None,
            csrf_token=csrf_token(token) if token is not None else UNSET,
        )

    @endpoint("PATCH /v1/me", access="admin", body=AccountChange)
    async def change_me(self, request: web.Request, principal: Principal) -> OwnAccount:
        """Change the name or the policy of the caller's account."""
        body = await read_json(request, AccountChange)
        row = await self.accounts.get(principal.account_id)
        policy = row.policy if isinstance(body.policy, UnsetType) else policy_text(body.policy)
        self.keys.check_policy(policy)
        name = row.name if isinstance(body.name, UnsetType) else body.name
        row = await self.accounts.update(principal.account_id, name=name, policy=policy)
        await self.caches.invalidate(row.id)
        return OwnAccount(account=describe_account(row))

    @endpoint("POST /v1/me/close", access="admin", body=AccountClosureBody)
    async def close_me(self, request: web.Request, principal: Principal) -> AccountInfo:
        """Close the caller's account for good.

        It takes the password, so that a leaked key is not enough.
        """
        body = await read_json(request, AccountClosureBody)
        attempt = self.login_limiter.admit(principal.account_id, address=context_of(request).address)
        row = await self.accounts.get(principal.account_id)
        row = await self.accounts.close_own(row, password=body.password)
        attempt.succeed()
        await self.caches.invalidate(row.id)
        return describe_account(row)


@dataclass(slots=True, kw_only=True)
class OperatorEndpoints:
    accounts: AccountService
    pages: AccountPages
    caches: AccountCaches

    @endpoint("GET /v1/accounts", access="operator", query=("after",))
    async def list_accounts(self, request: web.Request, _: Principal) -> AccountList:
        """List a page of the accounts, oldest first; `after` continues behind an account."""
        after = request.query.get("after")
        after_id = (await self.accounts.get(after)).id if after else None
        return AccountList(data=[describe_account(row) for row in await self.pages.list_accounts(after=after_id)])

    @endpoint("GET /v1/accounts/{account}", access="operator")
    async def show_account(self, request: web.Request, _: Principal) -> AccountInfo:
        """Show an account, by its id or its e-mail."""
        return describe_account(await self._account_in_path(request))

    @endpoint("PATCH /v1/accounts/{account}", access="operator", body=RoleChange)
    async def change_role(self, request: web.Request, principal: Principal) -> AccountInfo:
        """Give an account another role."""
        body = await read_json(request, RoleChange)
        row = await self._account_in_path(request)
        row = await self.accounts.set_role(row, body.role, by=principal.account_id)
        await self.caches.invalidate(row.id)
        return describe_account(row)

    @endpoint("POST /v1/accounts/{account}/close", access="operator")
    async def close_account(self, request: web.Request, principal: Principal) -> AccountInfo:
        """Close an account for good."""
        row = await self.accounts.close(await self._account_in_path(request), by=principal.account_id)
        await self.caches.invalidate(row.id)
        return describe_account(row)

    @endpoint("POST /v1/accounts/{account}/reset-password", access="operator", status=201)
    async def make_reset(self, request: web.Request, _: Principal) -> OneTimeToken:
        """Make a token that sets an account's password once; the operator hands it over."""
        row = await self._account_in_path(request)
        token, expires_at = await self.accounts.make_reset_token(row.id)
        return OneTimeToken(token=token, expires_at=expires_at.timestamp())

    @endpoint("POST /v1/invites", access="operator", status=201)
    async def make_invite(self, _: web.Request, principal: Principal) -> OneTimeToken:
        """Make an invitation, with which one person can sign up."""
        token, expires_at = await self.accounts.invite(by=principal.account_id)
        return OneTimeToken(token=token, expires_at=expires_at.timestamp())

    async def _account_in_path(self, request: web.Request) -> AccountRow:
        """By id or e-mail. Raises AccountNotFound."""
        return await self.accounts.get(request.match_info["account"])


@dataclass(slots=True, kw_only=True)
class JoinTokenEndpoints:
    tokens: JoinTokens
    caches: AccountCaches
    join_line: Callable[[str], Awaitable[str | None]]
    """The shell command for a token; None where there is no wheel to install."""
    order_of: Callable[[AccountId, str], Awaitable[str | None]]
    """The order of an account's lease; None until a block has it. Raises LeaseNotFound."""

    @endpoint("POST /v1/join-tokens", access="node", body=NewJoinToken, status=201)
    async def create_token(self, request: web.Request, principal: Principal) -> JoinToken:
        """Make a token with which one node joins the network."""
        body = await read_json(request, NewJoinToken)
        key_id = principal.key.id if principal.key is not None else None
        order = None if body.lease is None else await self.order_of(principal.account_id, body.lease)
        if body.lease is not None and order is None:
            raise InvalidField("This lease is not on the chain yet. Try again in a moment.", param="lease")
        token, expires_at = await self.tokens.create(
            principal.account_id, created_by=key_id, life_s=body.life_s, lease_order=order
        )
        if principal.role == "user":  # making the token turned the account into an owner's
            await self.caches.invalidate(principal.account_id)
        return JoinToken(token=token, expires_at=expires_at.timestamp(), join_line=await self.join_line(token))


def describe_account(row: AccountRow) -> AccountInfo:
    return AccountInfo(
        id=row.id,
        name=row.name,
        email=row.email,
        role=row.role,
        policy=policy_json(row.policy),
        chain_address=row.chain_address,
        created_at=row.created_at.timestamp(),
        closed_at=row.closed_at.timestamp() if row.closed_at else None,
    )
