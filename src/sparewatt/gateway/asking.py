"""A request as the routes see it, whatever read it from the socket: who asks, from where, and how fast they may."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from sparewatt.accounts.limits import Charge, Meter
from sparewatt.accounts.principal import Principal, Scope, by_key, by_session, require_operator, require_scope
from sparewatt.accounts.sessions import CSRF_HEADER, refuse_foreign_origin, refuse_forgery
from sparewatt.core.errors import RateLimited
from sparewatt.gateway.cookies import cookie_name
from sparewatt.gateway.cors import cors_headers
from sparewatt.gateway.proxies import client_address
from sparewatt.gateway.services import Services
from sparewatt.store.database import KeyRow

SERVER = "sparewatt"
"""What serves, and not which releases of what it is made of."""
_HTTPS_ONLY = "max-age=31536000"
"""Where we hold the certificate ourselves; behind a proxy that is the proxy's to say. For a year."""


class Asked:
    """One request: its head, who serves it, and since when."""

    __slots__ = ("began_s", "headers", "id", "meter", "method", "path", "peer", "services")

    def __init__(
        self, services: Services, *, id_: str, method: str, path: str, headers: Mapping[str, str], peer: str
    ) -> None:
        self.services = services
        self.id = id_
        self.method = method
        self.path = path
        self.headers = headers
        """Names in lower case, or a mapping that does not care."""
        self.peer = peer
        """The other end of the socket."""
        self.began_s = services.clock.now_s()
        self.meter: Meter | None = None
        """Whose limits it uses, once that is known."""

    @property
    def address(self) -> str:
        """Where it comes from: the other end of the socket, or what our own proxy says it was."""
        settings = self.services.settings
        if not settings.behind_proxy:
            return self.peer
        return client_address(self.peer, self.headers.get("x-forwarded-for", ""), trusted=settings.trusted_proxies)


def identify_here(asked: Asked) -> Principal | None:
    """Who is asking, by key: that needs no database. None if it is a browser, whose session must be looked up.

    From here on the reply tells what is left of their limits, whatever else is wrong with it.
    """
    services = asked.services
    authorization = asked.headers.get("authorization")
    if not authorization and _session_token(asked) is not None:
        return None
    key = services.ring.authenticate(authorization, unix_s=services.clock.unix_s())
    meter_by_key(asked, key)
    return by_key(key)


def meter_by_key(asked: Asked, key: KeyRow) -> None:
    """From here on the request uses this key's limits."""
    asked.meter = asked.services.limits.key_meter(
        key.id,
        now_s=asked.began_s,
        requests_per_min=key.requests_per_min,
        tokens_per_min=key.tokens_per_min,
    )


async def identify(asked: Asked) -> Principal:
    """Who is asking, by key or by cookie. A key comes first, also where a browser sends its cookie along."""
    return identify_here(asked) or await _identify_session(asked)


async def _identify_session(asked: Asked) -> Principal:
    services, token = asked.services, _session_token(asked) or ""
    session = await services.sessions.find(token)
    refuse_foreign_origin(asked.headers.get("origin"), ours=services.origins)
    refuse_forgery(token=token, method=asked.method, csrf=asked.headers.get(CSRF_HEADER))
    who = by_session(session)
    asked.meter = services.limits.key_meter(who.key_id, now_s=services.clock.now_s())
    return who


def _session_token(asked: Asked) -> str | None:
    said = asked.headers.get("cookie")
    if not said:
        return None
    try:
        found = SimpleCookie(said).get(cookie_name(asked.services.settings))
    except CookieError:
        return None
    return found.value if found is not None else None


async def authenticate(asked: Asked, scope: Scope) -> Principal:
    """Who is asking, and whether they may. Raises NotAuthenticated, NotAllowed or RateLimited."""
    who = await identify(asked)
    require_scope(who, scope)
    admit_rate(asked)
    return who


async def authenticate_operator(asked: Asked) -> Principal:
    who = await identify(asked)
    require_operator(who)
    admit_rate(asked)
    return who


def admit_rate(asked: Asked, *, tokens: int = 0) -> Charge:
    """Charge a request to its key and its address, or raise RateLimited. Needs to know who asks."""
    services, meter = asked.services, asked.meter
    if meter is None:
        raise RuntimeError("nobody has been identified")
    limits, now_s = services.limits, services.clock.now_s()
    address = limits.address_meter(asked.address, now_s=now_s)
    denial = limits.admit(meter, address, tokens=tokens, now_s=now_s)
    if denial is not None:
        wait_s = max(1.0, denial.retry_after_s)
        raise RateLimited(
            f"This {denial.who} has used up its {denial.what} per minute. Come back in {wait_s:.0f} s.",
            retry_after_s=wait_s,
        )
    return Charge(meter, address, tokens)


def own_lines(asked: Asked) -> str:
    """On every reply: its id, how long it took to begin, what is left of the key's limits, and what pages may see.

    Lines of a head, of which nobody else can say anything.
    """
    services, meter = asked.services, asked.meter
    now_s = services.clock.now_s()
    took_ms = (now_s - asked.began_s) * 1000
    lines = f"server: {SERVER}\r\nx-request-id: {asked.id}\r\nopenai-processing-ms: {took_ms:.0f}\r\n"
    if services.settings.has_tls:
        lines += f"strict-transport-security: {_HTTPS_ONLY}\r\n"
    return lines if meter is None else lines + meter.header_lines(now_s)


def own_headers(asked: Asked) -> dict[str, str]:
    """The same by name, with what a page of another origin must be told."""
    headers = dict(line.split(": ", maxsplit=1) for line in own_lines(asked).splitlines())
    return headers | cors_headers(asked.path, asked.headers) if "origin" in asked.headers else headers
