"""The session's cookie: out of reach of scripts and of other sites, and over TLS tied to this very host."""

from __future__ import annotations

from aiohttp import web

from sparewatt.core.limits import SESSION_LIFE_S
from sparewatt.edge.settings import EdgeSettings

_NAME = "sparewatt_session"


def is_secure(settings: EdgeSettings) -> bool:
    return settings.has_tls or (settings.public_url or "").lower().startswith("https://")


def cookie_name(settings: EdgeSettings) -> str:
    """With `__Host-` a browser itself sees to it that no other host, and no plain HTTP, can set it."""
    return f"__Host-{_NAME}" if is_secure(settings) else _NAME


def set_cookie(reply: web.Response, token: str, settings: EdgeSettings) -> None:
    reply.set_cookie(
        cookie_name(settings),
        token,
        max_age=int(SESSION_LIFE_S),
        path="/",
        httponly=True,
        secure=is_secure(settings),
        samesite="Strict",
    )


def clear_cookie(reply: web.Response, settings: EdgeSettings) -> None:
    reply.del_cookie(cookie_name(settings), path="/", httponly=True, secure=is_secure(settings), samesite="Strict")
