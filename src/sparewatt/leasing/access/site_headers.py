"""What of a request may reach a tenant's site, and of its reply a visitor: nothing that is ours. Pure.

A tenant's page has an origin of its own. These rules keep cookies and keys of the gateway out of its sight where a
browser or a person sends them there by mistake, and keep a site from setting cookies for other hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Headers = list[tuple[str, str]]
_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade"),
    }
)
_OF_PROXIES = frozenset(
    {"expect", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "content-length"}
)
_NOT_FROM_SITES = frozenset({"strict-transport-security", "clear-site-data", "alt-svc", "public-key-pins"})
"""These speak for more than one origin."""
_OUR_COOKIE = re.compile(r"\s*(?:__Host-|__Secure-)?sparewatt", re.IGNORECASE)
_OUR_KEY = re.compile(r"(?:sk|join)-sw-", re.IGNORECASE)
_DOMAIN = re.compile(r";\s*domain\s*=[^;]*", re.IGNORECASE)


def request_headers(received: Iterable[tuple[str, str]], *, address: str, scheme: str) -> Headers:
    """For the site. The body's framing and `connection` are the caller's."""
    kept: Headers = []
    host = ""
    for name, value in received:
        lower = name.lower()
        if lower in _HOP_BY_HOP or lower in _OF_PROXIES or lower.startswith("x-sparewatt-"):
            continue
        if lower in ("authorization", "x-api-key") and _OUR_KEY.search(value):
            continue
        passed = _without_ours(value) if lower == "cookie" else value
        host = value if lower == "host" else host
        if passed:
            kept.append((name, passed))
    return [*kept, ("X-Forwarded-For", address), ("X-Forwarded-Proto", scheme), ("X-Forwarded-Host", host)]


def reply_headers(received: Iterable[tuple[str, str]]) -> Headers:
    """For the visitor."""
    kept: Headers = []
    for name, value in received:
        lower = name.lower()
        if lower in _HOP_BY_HOP or lower in _NOT_FROM_SITES:
            continue
        if lower != "set-cookie":
            kept.append((name, value))
        elif not _OUR_COOKIE.match(value):
            kept.append((name, _DOMAIN.sub("", value)))
    return kept


def _without_ours(cookies: str) -> str:
    return "; ".join(each.strip() for each in cookies.split(";") if each.strip() and not _OUR_COOKIE.match(each))
