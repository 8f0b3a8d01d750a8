"""POST /v1/join-tokens: a token with which one node may join, for the account that asks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX, JOIN_TOKEN_LIFE_S
from sparewatt.gateway.downloads import join_line
from sparewatt.gateway.http import authenticate, json_reply, read_json
from sparewatt.gateway.services import services_of


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    life_s: Annotated[float, Meta(gt=0, le=30 * 24 * 3600)] = JOIN_TOKEN_LIFE_S


async def create_token(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "node")
    wanted = await read_json(request, NewToken, limit=CONTROL_BODY_BYTES_MAX)
    made_by = who.key.id if who.key is not None else None
    token, expires_at = await services.tokens.create(who.account_id, created_by=made_by, life_s=wanted.life_s)
    if who.role == "user":  # and from now on an owner
        services.sessions.forget(who.account_id)
        await services.keys.on_account_changed()
    line = await join_line(request, token)
    return json_reply({"token": token, "expires_at": expires_at.timestamp(), "join_line": line}, status=201)
