"""POST /v1/join-tokens: a token with which one node may join."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX, JOIN_TOKEN_LIFE_S
from sparewatt.gateway.http import authenticate, json_reply, read_json
from sparewatt.gateway.services import services_of


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    life_s: Annotated[float, Meta(gt=0, le=30 * 24 * 3600)] = JOIN_TOKEN_LIFE_S


async def create_token(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    key = authenticate(request, services.ring, "node")
    wanted = await read_json(request, NewToken, limit=CONTROL_BODY_BYTES_MAX)
    token, expires_at = await services.tokens.create(created_by=key.id, life_s=wanted.life_s)
    return json_reply({"token": token, "expires_at": expires_at.timestamp()}, status=201)
