"""/v1/me: who is asking, and what they may; and how an account is shown wherever one is."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType

from sparewatt.accounts.sessions import csrf_token
from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX
from sparewatt.gateway.accounts.keys import describe_key, policy_text, shown_policy
from sparewatt.gateway.cookies import cookie_name
from sparewatt.gateway.http import address_of, authenticate, identify, json_reply, read_json
from sparewatt.gateway.services import services_of
from sparewatt.store.people import AccountRow


class AccountChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays; a policy of null means none."""

    name: str | UnsetType = UNSET
    policy: msgspec.Raw | UnsetType = UNSET


class ClosingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: str


async def show_me(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await identify(request)
    told: dict[str, Any] = {
        "account": describe_account(await services.people.show(who.account_id)),
        "role": who.role,
        "scopes": who.scopes,
        "key": describe_key(who.key) if who.key is not None else None,
    }
    token = request.cookies.get(cookie_name(services.settings))
    if who.session is not None and token is not None:
        told["csrf_token"] = csrf_token(token)
    return json_reply(told)


async def change_me(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "admin")
    wanted = await read_json(request, AccountChange, limit=CONTROL_BODY_BYTES_MAX)
    row = await services.people.show(who.account_id)
    policy = row.policy if wanted.policy is UNSET else policy_text(wanted.policy)
    services.keys.check_policy(policy)
    name = row.name if isinstance(wanted.name, UnsetType) else wanted.name
    row = await services.people.describe(who.account_id, name=name, policy=policy)
    services.sessions.forget(who.account_id)
    await services.keys.on_account_changed()
    return json_reply({"account": describe_account(row)})


async def close_me(request: web.Request) -> web.StreamResponse:
    """For good, and only with the password: a key that was found must not be enough."""
    services = services_of(request)
    who = await authenticate(request, "admin")
    wanted = await read_json(request, ClosingBody, limit=CONTROL_BODY_BYTES_MAX)
    services.doors.login.knock(address=address_of(request), email=who.account_id)
    row = await services.people.close_own(await services.people.show(who.account_id), password=wanted.password)
    services.sessions.forget(row.id)
    await services.keys.on_account_changed()
    return json_reply(describe_account(row))


def describe_account(row: AccountRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "email": row.email,
        "role": row.role,
        "policy": shown_policy(row.policy),
        "chain_address": row.chain_address,
        "created_at": row.created_at.timestamp(),
        "closed_at": row.closed_at.timestamp() if row.closed_at else None,
    }
