"""Replies of aiohttp's handlers: a value as JSON, an error as OpenAI's error object."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.openai.chat import error_body, error_headers

ERROR_CODE = web.ResponseKey("error_code", str)


def json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json", headers=headers
    )


def error_reply(error: SparewattError, headers: Mapping[str, str] | None = None) -> web.Response:
    return refusal_reply(error, error_body(error), {**error_headers(error), **(headers or {})})


def refusal_reply(error: SparewattError, body: Mapping[str, object], headers: Mapping[str, str]) -> web.Response:
    """With an error object and headers that were made elsewhere."""
    reply = json_reply(body, status=error.status, headers=headers)
    reply[ERROR_CODE] = error.code
    return reply
