"""POST /v1/join-tokens: a token with which one node joins the network, for the caller's account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.accounts.principal import Principal
from sparewatt.api.accounts.accounts import AccountCaches
from sparewatt.api.endpoint import endpoint
from sparewatt.edge.bodies import read_json
from sparewatt.protocol.api.accounts import JoinToken, NewJoinToken


@dataclass(slots=True, kw_only=True)
class JoinTokenEndpoints:
    tokens: JoinTokens
    caches: AccountCaches
    join_line: Callable[[str], Awaitable[str | None]]
    """The shell command for a token; None where there is no wheel to install."""

    @endpoint("POST /v1/join-tokens", access="node", body=NewJoinToken, status=201)
    async def create_token(self, request: web.Request, principal: Principal) -> JoinToken:
        """Make a token with which one node joins the network."""
        body = await read_json(request, NewJoinToken)
        key_id = principal.key.id if principal.key is not None else None
        token, expires_at = await self.tokens.create(principal.account_id, created_by=key_id, life_s=body.life_s)
        if principal.role == "user":  # making the token turned the account into an owner's
            await self.caches.invalidate(principal.account_id)
        return JoinToken(token=token, expires_at=expires_at.timestamp(), join_line=await self.join_line(token))
