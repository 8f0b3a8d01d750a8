"""POST /v1/join-tokens: a token with which one node joins the network, for the caller's account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.accounts.keys import KeyService
from sparewatt.accounts.sessions import Sessions
from sparewatt.api.accounts.refresh import refresh_account
from sparewatt.api.endpoint import post
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.accounts import JoinToken, NewJoinToken


class JoinTokenEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        tokens: JoinTokens,
        keys: KeyService,
        sessions: Sessions,
        join_line: Callable[[str], Awaitable[str | None]],
    ) -> None:
        """`join_line`: the shell command for a token; None where there is no wheel to install."""
        self._auth = auth
        self._tokens = tokens
        self._keys = keys
        self._sessions = sessions
        self._join_line = join_line

    @post("/v1/join-tokens", body=NewJoinToken, status=201)
    async def create_token(self, request: web.Request) -> JoinToken:
        """Make a token with which one node joins the network."""
        principal = await self._auth.authenticate(context_of(request), "node")
        body = await read_json(request, NewJoinToken)
        key_id = principal.key.id if principal.key is not None else None
        token, expires_at = await self._tokens.create(principal.account_id, created_by=key_id, life_s=body.life_s)
        if principal.role == "user":  # making the token turned the account into an owner's
            await refresh_account(principal.account_id, sessions=self._sessions, keys=self._keys)
        return JoinToken(token=token, expires_at=expires_at.timestamp(), join_line=await self._join_line(token))
