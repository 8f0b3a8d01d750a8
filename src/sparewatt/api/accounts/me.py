"""/v1/me: the account that a request acts for, as its holder sees, changes and closes it."""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET, UnsetType

from sparewatt.accounts.account_service import AccountService
from sparewatt.accounts.keys import KeyService
from sparewatt.accounts.public_rate_limits import PublicRateLimiter
from sparewatt.accounts.sessions import Sessions, csrf_token
from sparewatt.api.accounts.descriptions import describe_account, describe_key, scope_names
from sparewatt.api.accounts.policies import policy_text
from sparewatt.api.accounts.refresh import refresh_account
from sparewatt.api.endpoint import get, patch, post
from sparewatt.edge.auth import Authenticator, cookie_name
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.accounts import AccountChange, AccountClosureBody, AccountInfo, OwnAccount, PrincipalInfo


class OwnAccountEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        people: AccountService,
        keys: KeyService,
        sessions: Sessions,
        login_door: PublicRateLimiter,
    ) -> None:
        """`login_door`: limits how often a password can be tried."""
        self._auth = auth
        self._people = people
        self._keys = keys
        self._sessions = sessions
        self._login_door = login_door

    @get("/v1/me")
    async def show_me(self, request: web.Request) -> PrincipalInfo:
        """Show the caller's account, and what its key or session may do."""
        context = context_of(request)
        principal = await self._auth.identify(context)
        row = await self._people.get(principal.account_id)
        token = request.cookies.get(cookie_name(context.settings)) if principal.session is not None else None
        return PrincipalInfo(
            account=describe_account(row),
            role=principal.role,
            scopes=scope_names(principal.scopes),
            key=describe_key(principal.key) if principal.key is not None else None,
            csrf_token=csrf_token(token) if token is not None else UNSET,
        )

    @patch("/v1/me", body=AccountChange)
    async def change_me(self, request: web.Request) -> OwnAccount:
        """Change the name or the policy of the caller's account."""
        principal = await self._auth.authenticate(context_of(request), "admin")
        body = await read_json(request, AccountChange)
        row = await self._people.get(principal.account_id)
        policy = row.policy if isinstance(body.policy, UnsetType) else policy_text(body.policy)
        self._keys.check_policy(policy)
        name = row.name if isinstance(body.name, UnsetType) else body.name
        row = await self._people.update(principal.account_id, name=name, policy=policy)
        await refresh_account(row.id, sessions=self._sessions, keys=self._keys)
        return OwnAccount(account=describe_account(row))

    @post("/v1/me/close", body=AccountClosureBody)
    async def close_me(self, request: web.Request) -> AccountInfo:
        """Close the caller's account for good.

        It takes the password, so that a leaked key is not enough.
        """
        context = context_of(request)
        principal = await self._auth.authenticate(context, "admin")
        body = await read_json(request, AccountClosureBody)
        self._login_door.admit(address=context.address, email=principal.account_id)
        row = await self._people.get(principal.account_id)
        row = await self._people.close_own(row, password=body.password)
        await refresh_account(row.id, sessions=self._sessions, keys=self._keys)
        return describe_account(row)
