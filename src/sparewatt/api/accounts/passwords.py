"""/v1/password: change it with the current one, or reset it with a token that came by mail or from an operator.

A reset needs no key, so it is rate-limited by address and e-mail, and refused to pages of other sites.
"""

from __future__ import annotations

from aiohttp import web

from sparewatt.accounts.account_service import AccountService, normalize_email
from sparewatt.accounts.mail import Mailer, reset_message
from sparewatt.accounts.public_rate_limits import PublicRateLimiters
from sparewatt.accounts.sessions import Sessions, check_origin
from sparewatt.api.endpoint import post
from sparewatt.core.errors import NotFound
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.accounts import (
    PasswordChangeBody,
    PasswordChangeResult,
    PasswordResetBody,
    PasswordResetRequestBody,
    PasswordResetRequestResult,
)


class PasswordEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        people: AccountService,
        sessions: Sessions,
        doors: PublicRateLimiters,
        mailer: Mailer | None,
        root_url: str,
        origins: frozenset[str],
    ) -> None:
        """`mailer`: None where this network sends no mail. `root_url`: this gateway's address, for the mail's text.

        `origins`: where pages of this gateway come from, as a browser names it.
        """
        self._auth = auth
        self._people = people
        self._sessions = sessions
        self._doors = doors
        self._mailer = mailer
        self._root_url = root_url
        self._origins = origins

    @post("/v1/password", body=PasswordChangeBody)
    async def change_password(self, request: web.Request) -> PasswordChangeResult:
        """Change the password. All other sessions of the account end."""
        context = context_of(request)
        principal = await self._auth.authenticate(context, "admin")
        body = await read_json(request, PasswordChangeBody)
        self._doors.login.admit(address=context.address, email=principal.account_id)
        await self._people.change_password(
            principal.account_id,
            current=body.current_password,
            new=body.password,
            keep_session=principal.session.hash if principal.session is not None else b"",
        )
        self._sessions.invalidate(principal.account_id)
        return PasswordChangeResult()

    @post("/v1/password/reset-request", body=PasswordResetRequestBody, status=202, is_public=True)
    async def request_reset(self, request: web.Request) -> PasswordResetRequestResult:
        """Send a reset token by mail to the holder of an e-mail address.

        The reply is the same, and as fast, whether or not an account has this address.
        """
        check_origin(request.headers.get("origin"), ours=self._origins)
        body = await read_json(request, PasswordResetRequestBody)
        if self._mailer is None:
            raise NotFound("This network sends no mail. Ask its operator for a reset token.")
        email = normalize_email(body.email)
        self._doors.reset.admit(address=context_of(request).address, email=email)
        token = await self._people.make_reset_token_for_email(email)
        if token is not None:
            self._mailer.enqueue(reset_message(email, token, root_url=self._root_url))
        return PasswordResetRequestResult()

    @post("/v1/password/reset", body=PasswordResetBody, is_public=True)
    async def reset_password(self, request: web.Request) -> PasswordChangeResult:
        """Set a new password with a reset token. All sessions of the account end."""
        check_origin(request.headers.get("origin"), ours=self._origins)
        body = await read_json(request, PasswordResetBody)
        self._doors.reset.admit(address=context_of(request).address)
        account_id = await self._people.reset_password(body.token, body.password)
        self._sessions.invalidate(account_id)
        return PasswordChangeResult()
