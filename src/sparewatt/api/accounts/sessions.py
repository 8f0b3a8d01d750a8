"""/v1/signup, /v1/login and /v1/logout: how a browser's session begins and ends.

Sign-up and login need no key, so each is rate-limited by address and e-mail. Both refuse requests from pages of other
sites (login CSRF): such a page could log its visitors in to an account of its own.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET

from sparewatt.accounts.account_service import AccountService, Signup, SignupHook, SignupMode, normalize_email
from sparewatt.accounts.public_rate_limits import PublicRateLimiters
from sparewatt.accounts.sessions import Sessions, check_origin, csrf_token
from sparewatt.api.accounts.descriptions import describe_account
from sparewatt.api.endpoint import post
from sparewatt.core.ids import AccountId
from sparewatt.edge.auth import Authenticator, RequestContext, clear_cookie, set_cookie
from sparewatt.edge.bodies import json_reply, read_json
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.accounts import LoginBody, LogoutResult, NewSession, SignupBody

_EMAIL_COUNTED_CHARS_MAX = 300
"""A login is counted by what was typed, also if that is no e-mail address; hence it is cut."""


class SessionEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        people: AccountService,
        sessions: Sessions,
        doors: PublicRateLimiters,
        signup_mode: SignupMode,
        signup_hook: SignupHook,
        origins: frozenset[str],
    ) -> None:
        """`origins`: where pages of this gateway come from, as a browser names it."""
        self._auth = auth
        self._people = people
        self._sessions = sessions
        self._doors = doors
        self._signup_mode = signup_mode
        self._signup_hook = signup_hook
        self._origins = origins

    @post("/v1/signup", body=SignupBody, reply=NewSession, status=201, is_public=True)
    async def sign_up(self, request: web.Request) -> web.Response:
        """Make an account, and log in to it."""
        context = context_of(request)
        check_origin(request.headers.get("origin"), ours=self._origins)
        body = await read_json(request, SignupBody)
        self._doors.signup.admit(address=context.address, email=normalize_email(body.email))
        signup = Signup(body.email, body.password, body.name, body.invite)
        row = await self._people.sign_up(signup, mode=self._signup_mode)
        notice = await self._signup_hook.on_signup(row.id, address=context.address)
        return await self._begin_session(context, row.id, status=201, notice=notice)

    @post("/v1/login", body=LoginBody, reply=NewSession, is_public=True)
    async def log_in(self, request: web.Request) -> web.Response:
        """Log in by e-mail and password. The reply sets the session's cookie."""
        context = context_of(request)
        check_origin(request.headers.get("origin"), ours=self._origins)
        body = await read_json(request, LoginBody)
        email = body.email.strip().lower()[:_EMAIL_COUNTED_CHARS_MAX]
        self._doors.login.admit(address=context.address, email=email)
        account_id = await self._people.log_in(body.email, body.password)
        return await self._begin_session(context, account_id)

    @post("/v1/logout", reply=LogoutResult)
    async def log_out(self, request: web.Request) -> web.Response:
        """End the session. An API key is not affected: it is revoked instead."""
        context = context_of(request)
        principal = await self._auth.identify(context)
        if principal.session is not None:
            await self._sessions.end(principal.session)
        reply = json_reply(LogoutResult(logged_out=principal.session is not None))
        clear_cookie(reply, context.settings)
        return reply

    async def _begin_session(
        self, context: RequestContext, account_id: AccountId, *, status: int = 200, notice: str | None = None
    ) -> web.Response:
        token = await self._sessions.begin(account_id)
        row = await self._people.get(account_id)
        session = NewSession(
            account=describe_account(row),
            csrf_token=csrf_token(token),
            notice=notice if notice is not None else UNSET,
        )
        reply = json_reply(session, status=status)
        set_cookie(reply, token, context.settings)
        return reply
