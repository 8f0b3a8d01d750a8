"""/v1/accounts and /v1/invites: other people's accounts, for operators of the network only."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from sparewatt.accounts.account_service import AccountService
from sparewatt.accounts.keys import KeyService
from sparewatt.accounts.sessions import Sessions
from sparewatt.api.accounts.descriptions import describe_account
from sparewatt.api.accounts.refresh import refresh_account
from sparewatt.api.endpoint import get, patch, post
from sparewatt.core.ids import AccountId
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.accounts import AccountInfo, AccountList, OneTimeToken, RoleChange
from sparewatt.store.accounts import AccountRow


class AccountPages(Protocol):
    """The part of `PeopleStore` that lists accounts."""

    async def list_accounts(self, *, after: AccountId | None) -> list[AccountRow]: ...


class OperatorEndpoints:
    def __init__(
        self, *, auth: Authenticator, people: AccountService, pages: AccountPages, keys: KeyService, sessions: Sessions
    ) -> None:
        self._auth = auth
        self._people = people
        self._pages = pages
        self._keys = keys
        self._sessions = sessions

    @get("/v1/accounts", query=("after",))
    async def list_accounts(self, request: web.Request) -> AccountList:
        """List a page of the accounts, oldest first; `after` continues behind an account."""
        await self._auth.authenticate_operator(context_of(request))
        after = request.query.get("after")
        after_id = (await self._people.get(after)).id if after else None
        return AccountList(data=[describe_account(row) for row in await self._pages.list_accounts(after=after_id)])

    @get("/v1/accounts/{account}")
    async def show_account(self, request: web.Request) -> AccountInfo:
        """Show an account, by its id or its e-mail."""
        await self._auth.authenticate_operator(context_of(request))
        return describe_account(await self._account_in_path(request))

    @patch("/v1/accounts/{account}", body=RoleChange)
    async def change_role(self, request: web.Request) -> AccountInfo:
        """Give an account another role."""
        principal = await self._auth.authenticate_operator(context_of(request))
        body = await read_json(request, RoleChange)
        row = await self._account_in_path(request)
        row = await self._people.set_role(row, body.role, by=principal.account_id)
        await refresh_account(row.id, sessions=self._sessions, keys=self._keys)
        return describe_account(row)

    @post("/v1/accounts/{account}/close")
    async def close_account(self, request: web.Request) -> AccountInfo:
        """Close an account for good."""
        principal = await self._auth.authenticate_operator(context_of(request))
        row = await self._people.close(await self._account_in_path(request), by=principal.account_id)
        await refresh_account(row.id, sessions=self._sessions, keys=self._keys)
        return describe_account(row)

    @post("/v1/accounts/{account}/reset-password", status=201)
    async def make_reset(self, request: web.Request) -> OneTimeToken:
        """Make a token that sets an account's password once; the operator hands it over."""
        await self._auth.authenticate_operator(context_of(request))
        row = await self._account_in_path(request)
        token, expires_at = await self._people.make_reset_token(row.id)
        return OneTimeToken(token=token, expires_at=expires_at.timestamp())

    @post("/v1/invites", status=201)
    async def make_invite(self, request: web.Request) -> OneTimeToken:
        """Make an invitation, with which one person can sign up."""
        principal = await self._auth.authenticate_operator(context_of(request))
        token, expires_at = await self._people.invite(by=principal.account_id)
        return OneTimeToken(token=token, expires_at=expires_at.timestamp())

    async def _account_in_path(self, request: web.Request) -> AccountRow:
        """By id or e-mail. Raises AccountNotFound."""
        return await self._people.get(request.match_info["account"])
