"""The context of a request; its authentication by API key or session cookie, and the rate limit of the principal.

A key is looked up in memory; only a browser's session needs the database. The rate limits themselves are token buckets
of `accounts/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from aiohttp import web

from sparewatt.accounts.keys import KeyRing
from sparewatt.accounts.principal import (
    Principal,
    Scope,
    principal_from_key,
    principal_from_session,
    require_operator,
    require_scope,
)
from sparewatt.accounts.rate_limits import RateCharge, RateLimiter, RateMeter
from sparewatt.accounts.sessions import CSRF_HEADER, Sessions, check_csrf, check_origin
from sparewatt.core.clock import Clock
from sparewatt.core.errors import RateLimited
from sparewatt.core.limits import SESSION_LIFE_S
from sparewatt.edge.cors import cors_headers
from sparewatt.edge.http1 import SERVER
from sparewatt.edge.proxies import forwarded_address
from sparewatt.edge.settings import EdgeSettings
from sparewatt.protocol.error_shapes import speaks_anthropic
from sparewatt.store.database import KeyRow

_COOKIE = "sparewatt_session"
_KEY_HEADER = "x-api-key"
DEVICE_COOKIE_LIFE_S = 180 * 24 * 3600.0
"""Longer than anybody stays away from an account in use."""
_HTTPS_ONLY = "max-age=31536000"
"""HSTS for a year, sent only where TLS ends in this process; a proxy in front sets its own."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RequestContext:
    """One HTTP request as authentication, rate limits and logs see it, whether an `Exchange` or aiohttp serves it.

    Not printable: its headers contain the key.
    """

    settings: EdgeSettings
    id: str
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case, or a mapping that ignores case."""
    peer: str
    """The address at the other end of the socket."""
    began_s: float
    meter: RateMeter | None = None
    """The rate limit of the key or session, set by the `Authenticator`."""

    @property
    def authorization(self) -> str | None:
        """The Authorization header; without one, the key of `x-api-key`, where Anthropic's clients put it."""
        return authorization_of(self.headers)

    @property
    def address(self) -> str:
        """The client's, also behind our own reverse proxy."""
        return forwarded_address(self.peer, self.headers, self.settings)

    def reply_lines(self, now_s: float) -> str:
        """Header lines of every reply: request id, time until the reply began, remaining rate limit.

        They contain nothing that a client sent, so they need no escaping.
        """
        took_ms = (now_s - self.began_s) * 1000
        lines = f"server: {SERVER}\r\nx-request-id: {self.id}\r\nopenai-processing-ms: {took_ms:.0f}\r\n"
        if self.settings.has_tls:
            lines += f"strict-transport-security: {_HTTPS_ONLY}\r\n"
        return lines if self.meter is None else lines + self.meter.header_lines(now_s)

    def reply_headers(self, now_s: float) -> dict[str, str]:
        """The same lines as a mapping, with the CORS headers for a page of another origin."""
        headers = dict(line.split(": ", maxsplit=1) for line in self.reply_lines(now_s).splitlines())
        if speaks_anthropic(self.path, self.headers):
            headers["request-id"] = self.id
        return headers | cors_headers(self.path, self.headers) if "origin" in self.headers else headers


@dataclass(slots=True, kw_only=True)
class Authenticator:
    keys: KeyRing
    sessions: Sessions
    limits: RateLimiter
    origins: frozenset[str]
    """The origins of this gateway's own pages, as a browser sends them."""
    clock: Clock

    def identify_by_key(self, context: RequestContext) -> Principal | None:
        """Look the key up in memory. None for a browser, whose session is in the database. Raises NotAuthenticated.

        From here on the reply has the headers of the key's rate limit, whatever else is wrong with the request.
        """
        authorization = context.authorization
        if not authorization and _session_token(context) is not None:
            return None
        key = self.keys.authenticate(authorization, unix_s=self.clock.unix_s())
        self._meter_by_key(context, key)
        return principal_from_key(key)

    def identify_again(self, context: RequestContext, principal: Principal) -> bool:
        """Whether an accepted key is still the same row; then the request uses its rate limit."""
        key = principal.key
        if key is None or not self.keys.revalidate(key):
            return False
        self._meter_by_key(context, key)
        return True

    async def identify(self, context: RequestContext) -> Principal:
        """By key or by cookie; the key wins if a browser sends both."""
        return self.identify_by_key(context) or await self._identify_session(context)

    async def authenticate(self, context: RequestContext, scope: Scope) -> Principal:
        """Identify, check the scope, and charge the rate limit. Raises NotAuthenticated, NotAllowed or RateLimited."""
        principal = await self.identify(context)
        require_scope(principal, scope)
        self.charge(context)
        return principal

    async def authenticate_operator(self, context: RequestContext) -> Principal:
        """The same for operators of the network only. Raises OperatorsOnly as well."""
        principal = await self.identify(context)
        require_operator(principal)
        self.charge(context)
        return principal

    def charge(self, context: RequestContext, *, tokens: int = 0) -> RateCharge:
        """Charge an identified request to the rate limits of its key and of its address. Raises RateLimited."""
        meter, now_s = context.meter, self.clock.now_s()
        if meter is None:
            raise RuntimeError("a request is identified before it is charged")
        address = self.limits.address_meter(context.address, now_s=now_s)
        denial = self.limits.admit(meter, address, tokens=tokens, now_s=now_s)
        if denial is not None:
            wait_s = max(1.0, denial.retry_after_s)
            raise RateLimited(
                f"This {denial.who} has used up its {denial.what} per minute. Try again in {wait_s:.0f} s.",
                retry_after_s=wait_s,
            )
        return RateCharge(meter, address, tokens)

    def _meter_by_key(self, context: RequestContext, key: KeyRow) -> None:
        context.meter = self.limits.key_meter(
            key.id,
            now_s=context.began_s,
            requests_per_min=key.requests_per_min,
            tokens_per_min=key.tokens_per_min,
        )

    async def _identify_session(self, context: RequestContext) -> Principal:
        token = _session_token(context) or ""
        session = await self.sessions.find(token)
        check_origin(context.headers.get("origin"), ours=self.origins)
        check_csrf(token=token, method=context.method, csrf=context.headers.get(CSRF_HEADER))
        principal = principal_from_session(session)
        context.meter = self.limits.key_meter(principal.key_id, now_s=self.clock.now_s())
        return principal


def authorization_of(headers: Mapping[str, str]) -> str | None:
    """What a client presents as its API key, in the form of an Authorization header."""
    authorization = headers.get("authorization")
    if authorization:
        return authorization
    key = headers.get(_KEY_HEADER)
    return f"Bearer {key}" if key else None


def _session_token(context: RequestContext) -> str | None:
    cookies = context.headers.get("cookie")
    if not cookies:
        return None
    try:
        morsel = SimpleCookie(cookies).get(cookie_name(context.settings))
    except CookieError:
        return None
    return morsel.value if morsel is not None else None


def cookie_name(settings: EdgeSettings) -> str:
    """With the prefix `__Host-` a browser accepts the cookie from this very host only, and only over TLS."""
    return f"__Host-{_COOKIE}" if _is_secure(settings) else _COOKIE


def set_cookie(reply: web.Response, token: str, settings: EdgeSettings) -> None:
    _set_cookie(reply, cookie_name(settings), token, settings, life_s=SESSION_LIFE_S)


def device_cookie_name(settings: EdgeSettings) -> str:
    return f"{cookie_name(settings)}_device"


def set_device_cookie(reply: web.Response, token: str, settings: EdgeSettings) -> None:
    """It tells this browser from strangers who guess passwords; it stays when the session ends, and opens nothing."""
    _set_cookie(reply, device_cookie_name(settings), token, settings, life_s=DEVICE_COOKIE_LIFE_S)


def _set_cookie(reply: web.Response, name: str, token: str, settings: EdgeSettings, *, life_s: float) -> None:
    """Out of reach of scripts (HttpOnly) and of other sites (SameSite)."""
    secure = _is_secure(settings)
    reply.set_cookie(name, token, max_age=int(life_s), path="/", httponly=True, secure=secure, samesite="Strict")


def clear_cookie(reply: web.Response, settings: EdgeSettings) -> None:
    reply.del_cookie(cookie_name(settings), path="/", httponly=True, secure=_is_secure(settings), samesite="Strict")


def _is_secure(settings: EdgeSettings) -> bool:
    return settings.has_tls or (settings.public_url or "").lower().startswith("https://")
