"""Letting pages of any site call the API with a key: cross-origin headers, and the browser's question beforehand.

Any origin, and never credentials: a browser then sends no cookie, and shows a page no reply that one came with. So the
routes that give or take cookies say nothing here, and pages of other sites cannot use them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiohttp import web

COOKIE_PATHS = frozenset({"/v1/signup", "/v1/login", "/v1/logout"})
_COOKIE_PREFIX = "/v1/password"
_API_PREFIX, _DOCUMENT = "/v1/", "/openapi.json"

EXPOSED = (
    "openai-processing-ms",
    "retry-after",
    "retry-after-ms",
    "x-request-id",
    "x-should-retry",
    "idempotency-replayed",
    *(f"x-ratelimit-{figure}-{what}" for figure in ("limit", "remaining", "reset") for what in ("requests", "tokens")),
    *(
        f"x-sparewatt-{name}"
        for name in (
            "attempts",
            "cost",
            "ignored-params",
            "match-id",
            "node",
            "output-limit",
            "queue-position",
            "queued-ms",
            "region",
        )
    ),
)
"""What a page may read of a reply. A `*` would cover them, but not in every browser."""

USUAL_HEADERS = (
    "authorization",
    "content-type",
    "idempotency-key",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "x-client-request-id",
    "x-sparewatt-policy",
    "x-sparewatt-priority",
    "x-sparewatt-route",
)
METHODS = "GET, POST, PATCH, DELETE, OPTIONS"
MAX_AGE_S = 7200
"""What Chromium remembers at most."""
_ASKED_MAX, _ASKED_CHARS_MAX = 64, 2048
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")


def is_open(path: str) -> bool:
    """Whether pages of other sites may call it."""
    is_ours = path.startswith(_API_PREFIX) or path == _DOCUMENT
    return is_ours and path not in COOKIE_PATHS and not path.startswith(_COOKIE_PREFIX)


def is_preflight(request: web.BaseRequest) -> bool:
    asked = {"origin", "access-control-request-method"}
    return request.method == "OPTIONS" and all(name in request.headers for name in asked)


def preflight(request: web.BaseRequest) -> web.Response:
    """Answer the browser's question. Whatever headers it asks for are allowed: clients add their own, by version."""
    return web.Response(
        status=204,
        headers={
            "access-control-allow-methods": METHODS,
            "access-control-allow-headers": allowed_headers(request.headers.get("access-control-request-headers", "")),
            "access-control-max-age": str(MAX_AGE_S),
        },
    )


def allowed_headers(asked: str) -> str:
    """The usual ones, and what was asked for as far as these are names of headers. `*` would not cover a key."""
    names = [name.strip().lower() for name in asked[:_ASKED_CHARS_MAX].split(",")][:_ASKED_MAX]
    fit = [name for name in names if _HEADER_NAME.fullmatch(name)]
    return ", ".join(dict.fromkeys((*USUAL_HEADERS, *fit)))


def cors_headers(path: str, headers: Mapping[str, str]) -> dict[str, str]:
    """For a reply to a page; nothing where no page asks, or where a cookie came along."""
    if "origin" not in headers or "cookie" in headers or not is_open(path):
        return {}
    return {
        "access-control-allow-origin": "*",
        "access-control-expose-headers": ", ".join(EXPOSED),
        "vary": "origin",
    }
