"""Signing up, logging in and out, and passwords: the doors that stand open to anybody, and what follows them."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from sparewatt.accounts.mail import reset_mail
from sparewatt.accounts.people import Signup, normal_email
from sparewatt.accounts.sessions import csrf_token, refuse_foreign_origin
from sparewatt.core.errors import NotFound
from sparewatt.core.ids import AccountId
from sparewatt.core.limits import CONTROL_BODY_BYTES_MAX
from sparewatt.gateway.accounts.me import describe_account
from sparewatt.gateway.cookies import clear_cookie, set_cookie
from sparewatt.gateway.http import address_of, authenticate, identify, json_reply, read_json
from sparewatt.gateway.services import Services, services_of


class SignupBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    email: str
    password: str
    name: str = ""
    invite: str | None = None


class LoginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    email: str
    password: str


class PasswordBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    current_password: str
    password: str


class ResetRequestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    email: str


class ResetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: str
    password: str


async def sign_up(request: web.Request) -> web.StreamResponse:
    services = _at_the_door(request)
    wanted = await read_json(request, SignupBody, limit=CONTROL_BODY_BYTES_MAX)
    address = address_of(request)
    services.doors.signup.knock(address=address, email=normal_email(wanted.email))
    signup = Signup(wanted.email, wanted.password, wanted.name, wanted.invite)
    row = await services.people.sign_up(signup, mode=services.settings.signup_mode)
    notice = await services.signup_hook.on_signup(row.id, address=address)
    return await _logged_in(services, row.id, status=201, notice=notice)


async def log_in(request: web.Request) -> web.StreamResponse:
    services = _at_the_door(request)
    wanted = await read_json(request, LoginBody, limit=CONTROL_BODY_BYTES_MAX)
    services.doors.login.knock(address=address_of(request), email=wanted.email.strip().lower()[:300])
    account_id = await services.people.log_in(wanted.email, wanted.password)
    return await _logged_in(services, account_id)


async def log_out(request: web.Request) -> web.StreamResponse:
    """Of a browser. A key is revoked instead; with one, nothing happens here."""
    services = services_of(request)
    who = await identify(request)
    if who.session is not None:
        await services.sessions.end(who.session)
    reply = json_reply({"logged_out": who.session is not None})
    clear_cookie(reply, services.settings)
    return reply


async def change_password(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "admin")
    wanted = await read_json(request, PasswordBody, limit=CONTROL_BODY_BYTES_MAX)
    services.doors.login.knock(address=address_of(request), email=who.account_id)
    kept = who.session.hash if who.session is not None else b""
    await services.people.change_password(
        who.account_id, current=wanted.current_password, new=wanted.password, keep_session=kept
    )
    services.sessions.forget(who.account_id)
    return json_reply({"changed": True})


async def request_reset(request: web.Request) -> web.StreamResponse:
    """The same answer, as fast, whether or not anybody has this address."""
    services = _at_the_door(request)
    wanted = await read_json(request, ResetRequestBody, limit=CONTROL_BODY_BYTES_MAX)
    if services.mailer is None:
        raise NotFound("This network sends no mail. Ask its operator for a reset token.")
    email = normal_email(wanted.email)
    services.doors.reset.knock(address=address_of(request), email=email)
    token = await services.people.find_reset(email)
    if token is not None:
        services.mailer.post(reset_mail(email, token, root_url=services.root_url))
    return json_reply({"requested": True}, status=202)


async def reset_password(request: web.Request) -> web.StreamResponse:
    services = _at_the_door(request)
    wanted = await read_json(request, ResetBody, limit=CONTROL_BODY_BYTES_MAX)
    services.doors.reset.knock(address=address_of(request))
    account_id = await services.people.reset_password(wanted.token, wanted.password)
    services.sessions.forget(account_id)
    return json_reply({"changed": True})


def _at_the_door(request: web.Request) -> Services:
    """Nobody is known yet, but a page of another site must not log its visitors in as somebody else."""
    services = services_of(request)
    refuse_foreign_origin(request.headers.get("origin"), ours=services.origins)
    return services


async def _logged_in(
    services: Services, account_id: AccountId, *, status: int = 200, notice: str | None = None
) -> web.Response:
    token = await services.sessions.begin(account_id)
    row = await services.people.show(account_id)
    told: dict[str, Any] = {"account": describe_account(row), "csrf_token": csrf_token(token)}
    reply = json_reply(told if notice is None else told | {"notice": notice}, status=status)
    set_cookie(reply, token, services.settings)
    return reply
