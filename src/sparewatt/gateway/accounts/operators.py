"""/v1/accounts and /v1/invites: what only an operator of the network may see and do."""

from __future__ import annotations

from typing import Literal

import msgspec
from aiohttp import web

from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX
from sparewatt.gateway.accounts.me import describe_account
from sparewatt.gateway.http import authenticate_operator, json_reply, listing, read_json
from sparewatt.gateway.services import Services, services_of
from sparewatt.store.people import AccountRow


class RoleChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["user", "owner", "operator"]


async def list_accounts(request: web.Request) -> web.StreamResponse:
    """A page of them, oldest first; `after` continues behind an account."""
    services = services_of(request)
    await authenticate_operator(request)
    after = request.query.get("after")
    behind = (await services.people.show(after)).id if after else None
    rows = await services.database.people.list_accounts(after=behind)
    return json_reply(listing([describe_account(row) for row in rows]))


async def show_account(request: web.Request) -> web.StreamResponse:
    """By its id or its e-mail."""
    await authenticate_operator(request)
    return json_reply(describe_account(await _named(request)))


async def change_role(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate_operator(request)
    wanted = await read_json(request, RoleChange, limit=CONTROL_BODY_BYTES_MAX)
    row = await services.people.set_role(await _named(request), wanted.role, by=who.account_id)
    await _take_effect(services, row)
    return json_reply(describe_account(row))


async def close_account(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate_operator(request)
    row = await services.people.close(await _named(request), by=who.account_id)
    await _take_effect(services, row)
    return json_reply(describe_account(row))


async def make_reset(request: web.Request) -> web.StreamResponse:
    """A token for somebody who forgot their password, to be handed over by the operator."""
    services = services_of(request)
    await authenticate_operator(request)
    token, expires_at = await services.people.make_reset((await _named(request)).id)
    return json_reply({"token": token, "expires_at": expires_at.timestamp()}, status=201)


async def make_invite(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate_operator(request)
    token, expires_at = await services.people.invite(by=who.account_id)
    return json_reply({"token": token, "expires_at": expires_at.timestamp()}, status=201)


async def _named(request: web.Request) -> AccountRow:
    return await services_of(request).people.show(request.match_info["account"])


async def _take_effect(services: Services, row: AccountRow) -> None:
    """Here at once; other gateways look every second."""
    services.sessions.forget(row.id)
    await services.keys.on_account_changed()
