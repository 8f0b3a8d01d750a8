"""/v1/keys: make, list, revoke."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX
from sparewatt.gateway.http import authenticate, json_reply, listing, read_json
from sparewatt.gateway.services import services_of
from sparewatt.store.database import KeyRow


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = "unnamed"
    scopes: list[str] = msgspec.field(default_factory=lambda: ["inference"])


async def create_key(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    authenticate(request, services.ring, "admin")
    wanted = await read_json(request, NewKey, limit=CONTROL_BODY_BYTES_MAX)
    row, secret = await services.keys.create(name=wanted.name, scopes=wanted.scopes)
    return json_reply(_describe(row) | {"key": secret}, status=201)


async def list_keys(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    authenticate(request, services.ring, "admin")
    return json_reply(listing([_describe(row) for row in await services.database.list_keys()]))


async def revoke_key(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    authenticate(request, services.ring, "admin")
    row = await services.keys.revoke(request.match_info["key_id"])
    return json_reply(_describe(row) | {"revoked": True})


def _describe(row: KeyRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "prefix": row.prefix,
        "scopes": row.scopes,
        "created_at": row.created_at.timestamp(),
        "revoked_at": row.revoked_at.timestamp() if row.revoked_at else None,
    }
