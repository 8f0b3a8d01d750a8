"""/v1/signup, /v1/login and /v1/logout: how a browser's session begins and ends.

/v1/password changes a password with the current one, or with a reset token, which comes by mail or from an operator.
Endpoints without a key are rate-limited by address and e-mail, and refuse pages of other sites (login CSRF): such a
page could log its visitors in to an account of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web
from msgspec import UNSET

from sparewatt.accounts.account_service import AccountService, Signup, SignupHook, SignupMode, normalize_email
from sparewatt.accounts.login_limits import LoginLimiter
from sparewatt.accounts.mail import Mailer, reset_message
from sparewatt.accounts.principal import Principal
from sparewatt.accounts.public_rate_limits import PublicRateLimiters
from sparewatt.accounts.sessions import Sessions, check_origin, csrf_token
from sparewatt.api.accounts.accounts import describe_account
from sparewatt.api.endpoint import endpoint
from sparewatt.core.errors import NotFound
from sparewatt.core.ids import AccountId
from sparewatt.edge.auth import RequestContext, clear_cookie, device_cookie_name, set_cookie, set_device_cookie
from sparewatt.edge.bodies import json_reply, read_json
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.accounts import (
    LoginBody,
    LoginLink,
    LoginLinkBody,
    LogoutResult,
    NewSession,
    PasswordChangeBody,
    PasswordChangeResult,
    PasswordResetBody,
    PasswordResetRequestBody,
    PasswordResetRequestResult,
    SignupBody,
)

_EMAIL_COUNTED_CHARS_MAX = 300
"""A login is counted by what was typed, also if that is no e-mail address; hence it is cut."""


@dataclass(slots=True, kw_only=True)
class SessionEndpoints:
    accounts: AccountService
    sessions: Sessions
    limiters: PublicRateLimiters
    login_limiter: LoginLimiter
    signup_mode: SignupMode
    signup_hook: SignupHook
    mailer: Mailer | None
    """None where this network sends no mail."""
    root_url: str
    """This gateway's address, for the text of a mail."""
    origins: frozenset[str]
    """Where pages of this gateway come from, as a browser names it."""

    @endpoint("POST /v1/signup", access="public", body=SignupBody, reply=NewSession, status=201)
    async def sign_up(self, request: web.Request) -> web.Response:
        """Make an account, and log in to it."""
        context = context_of(request)
        check_origin(request.headers.get("origin"), ours=self.origins)
        body = await read_json(request, SignupBody)
        self.limiters.signup.admit(address=context.address, email=normalize_email(body.email))
        signup = Signup(body.email, body.password, body.name, body.invite)
        row = await self.accounts.sign_up(signup, mode=self.signup_mode)
        notice = await self.signup_hook.on_signup(row.id, address=context.address)
        return await self._begin_session(context, row.id, login=_login_named(body.email), status=201, notice=notice)

    @endpoint("POST /v1/login", access="public", body=LoginBody, reply=NewSession)
    async def log_in(self, request: web.Request) -> web.Response:
        """Log in by e-mail and password. The reply sets the session's cookie, and a device token beside it."""
        context = context_of(request)
        check_origin(request.headers.get("origin"), ours=self.origins)
        body = await read_json(request, LoginBody)
        login = _login_named(body.email)
        device = request.cookies.get(device_cookie_name(context.settings))
        attempt = self.login_limiter.admit(login, address=context.address, device=device)
        account_id = await self.accounts.log_in(body.email, body.password)
        attempt.succeed()
        return await self._begin_session(context, account_id, login=login)

    @endpoint("POST /v1/login/links", access="admin", status=201)
    async def make_link(self, request: web.Request, principal: Principal) -> LoginLink:  # noqa: ARG002
        """Make a link that opens the page as your account, once, within ten minutes."""
        token, expires_at = await self.accounts.make_login_link(principal.account_id)
        return LoginLink(url=f"{self.root_url}/login#{token}", expires_at=expires_at.timestamp())

    @endpoint("POST /v1/login/link", access="public", body=LoginLinkBody, reply=NewSession)
    async def use_link(self, request: web.Request) -> web.Response:
        """Log in by the token of a link. The reply sets the session's cookie."""
        context = context_of(request)
        check_origin(request.headers.get("origin"), ours=self.origins)
        body = await read_json(request, LoginLinkBody)
        self.limiters.reset.admit(address=context.address)
        account_id = await self.accounts.use_login_link(body.token)
        return await self._begin_session(context, account_id, login=account_id)

    @endpoint("POST /v1/logout", access="identified", reply=LogoutResult)
    async def log_out(self, request: web.Request, principal: Principal) -> web.Response:
        """End the session. An API key is not affected: it is revoked instead."""
        if principal.session is not None:
            await self.sessions.end(principal.session)
        reply = json_reply(LogoutResult(logged_out=principal.session is not None))
        clear_cookie(reply, context_of(request).settings)
        return reply

    @endpoint("POST /v1/password", access="admin", body=PasswordChangeBody)
    async def change_password(self, request: web.Request, principal: Principal) -> PasswordChangeResult:
        """Change the password. All other sessions of the account end."""
        body = await read_json(request, PasswordChangeBody)
        attempt = self.login_limiter.admit(principal.account_id, address=context_of(request).address)
        await self.accounts.change_password(
            principal.account_id,
            current=body.current_password,
            new=body.password,
            keep_session=principal.session.hash if principal.session is not None else b"",
        )
        attempt.succeed()
        self.sessions.invalidate(principal.account_id)
        return PasswordChangeResult()

    @endpoint("POST /v1/password/reset-request", access="public", body=PasswordResetRequestBody, status=202)
    async def request_reset(self, request: web.Request) -> PasswordResetRequestResult:
        """Send a reset token by mail to the holder of an e-mail address.

        The reply is the same, and as fast, whether or not an account has this address.
        """
        check_origin(request.headers.get("origin"), ours=self.origins)
        body = await read_json(request, PasswordResetRequestBody)
        if self.mailer is None:
            raise NotFound("This network sends no mail. Ask its operator for a reset token.")
        email = normalize_email(body.email)
        self.limiters.reset.admit(address=context_of(request).address, email=email)
        token = await self.accounts.make_reset_token_for_email(email)
        if token is not None:
            self.mailer.enqueue(reset_message(email, token, root_url=self.root_url))
        return PasswordResetRequestResult()

    @endpoint("POST /v1/password/reset", access="public", body=PasswordResetBody, reply=PasswordChangeResult)
    async def reset_password(self, request: web.Request) -> web.Response:
        """Set a new password with a reset token. All sessions of the account end."""
        context = context_of(request)
        check_origin(request.headers.get("origin"), ours=self.origins)
        body = await read_json(request, PasswordResetBody)
        self.limiters.reset.admit(address=context.address)
        account_id = await self.accounts.reset_password(body.token, body.password)
        self.sessions.invalidate(account_id)
        reply = json_reply(PasswordChangeResult())
        login = (await self.accounts.get(account_id)).email
        if login is not None:
            set_device_cookie(reply, self.login_limiter.devices.issue(login), context.settings)
        return reply

    async def _begin_session(
        self,
        context: RequestContext,
        account_id: AccountId,
        *,
        login: str,
        status: int = 200,
        notice: str | None = None,
    ) -> web.Response:
        token = await self.sessions.begin(account_id)
        session = NewSession(
            account=describe_account(await self.accounts.get(account_id)),
            csrf_token=csrf_token(token),
            notice=notice if notice is not None else UNSET,
        )
        reply = json_reply(session, status=status)
        set_cookie(reply, token, context.settings)
        set_device_cookie(reply, self.login_limiter.devices.issue(login), context.settings)
        return reply


def _login_named(email: str) -> str:
    """What wrong passwords are counted by: what was typed, also if that is no e-mail address."""
    return email.strip().lower()[:_EMAIL_COUNTED_CHARS_MAX]
