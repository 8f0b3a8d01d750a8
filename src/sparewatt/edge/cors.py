"""CORS: pages of any site may call the API with a key. Reply headers, and the browser's preflight request.

Any origin is allowed, credentials never: a browser then sends no cookie, and hides a reply to a request that had one.
Routes that set or read cookies get no CORS headers, so pages of other sites cannot use them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiohttp import web

from sparewatt.protocol.error_shapes import OLLAMA_PREFIX

_COOKIE_PATHS = frozenset({"/v1/signup", "/v1/login", "/v1/logout"})

EXPOSED = (
    "openai-processing-ms",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "x-request-id",
    "x-should-retry",
    "idempotency-replayed",
    *(f"x-ratelimit-{figure}-{what}" for figure in ("limit", "remaining", "reset") for what in ("requests", "tokens")),
    *(f"x-sparewatt-{name}" for name in ("attempts", "cost", "ignored-params", "match-id", "node", "output-limit")),
    *(f"x-sparewatt-{name}" for name in ("queue-position", "queued-ms", "region")),
)
"""Reply headers that a page may read. Not every browser understands `*`."""

USUAL_HEADERS = (
    "anthropic-beta",
    "anthropic-version",
    "authorization",
    "content-type",
    "idempotency-key",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "x-api-key",
    "x-client-request-id",
    "x-sparewatt-policy",
    "x-sparewatt-priority",
    "x-sparewatt-route",
)
METHODS = "GET, POST, PATCH, DELETE, OPTIONS"
MAX_AGE_S = 7200
"""Chromium caches a preflight for no longer."""
_REQUESTED_MAX, _REQUESTED_CHARS_MAX = 64, 2048
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")


def is_open(path: str) -> bool:
    """Whether pages of other sites may call it."""
    is_api = path.startswith(("/v1/", OLLAMA_PREFIX)) or path == "/openapi.json"
    return is_api and path not in _COOKIE_PATHS and not path.startswith("/v1/password")


def is_preflight(request: web.BaseRequest) -> bool:
    headers = request.headers
    return request.method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def preflight(request: web.BaseRequest) -> web.Response:
    """The reply to a preflight. Any header name is allowed: each release of a client adds its own."""
    return web.Response(
        status=204,
        headers={
            "access-control-allow-methods": METHODS,
            "access-control-allow-headers": allowed_headers(request.headers.get("access-control-request-headers", "")),
            "access-control-max-age": str(MAX_AGE_S),
        },
    )


def allowed_headers(requested: str) -> str:
    """The usual ones, and those requested that are valid header names. `*` would not cover `authorization`."""
    names = [name.strip().lower() for name in requested[:_REQUESTED_CHARS_MAX].split(",")][:_REQUESTED_MAX]
    valid = [name for name in names if _HEADER_NAME.fullmatch(name)]
    return ", ".join(dict.fromkeys((*USUAL_HEADERS, *valid)))


def cors_headers(path: str, headers: Mapping[str, str]) -> dict[str, str]:
    """For a reply to a page; nothing if the request has no origin, or has a cookie."""
    if "origin" not in headers or "cookie" in headers or not is_open(path):
        return {}
    return {
        "access-control-allow-origin": "*",
        "access-control-expose-headers": ", ".join(EXPOSED),
        "vary": "origin",
    }
