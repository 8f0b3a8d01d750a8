"""Bodies of requests and replies at aiohttp's handlers: bounded reads, JSON of a known type, OpenAI's error object."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from aiohttp import web

from sparewatt.core.errors import BodyTooLarge, BodyTooSlow, InvalidField, InvalidJson, SparewattError
from sparewatt.core.limits import KIB, MIB, READ_PER_TICK_BYTES
from sparewatt.edge.settings import CLIENT_BODY_S
from sparewatt.protocol.openai.chat import error_body, error_headers
from sparewatt.protocol.openai.json_complexity import JsonComplexityCheck
from sparewatt.protocol.shaped_error import ShapedError

CONTROL_BODY_BYTES_MAX = 64 * KIB
"""Bodies about keys, tokens and match queries are small."""
ERROR_CODE = web.ResponseKey("error_code", str)
_T = TypeVar("_T")


async def read_body(request: web.Request, *, limit: int) -> bytes:
    """The whole body. Refused as soon as it is too large, or contains too many values for a JSON decoder."""
    too_large = BodyTooLarge(f"The body is larger than {limit // MIB} MiB." if limit >= MIB else "Too large.")
    if request.content_length is not None and request.content_length > limit:
        raise too_large
    pieces, size_bytes, complexity = [], 0, JsonComplexityCheck()
    try:
        async with asyncio.timeout(CLIENT_BODY_S):
            async for piece in request.content.iter_chunked(READ_PER_TICK_BYTES):
                pieces.append(piece)
                size_bytes += len(piece)
                if size_bytes > limit:
                    raise too_large
                complexity.feed(piece)
                if len(piece) == READ_PER_TICK_BYTES:
                    await asyncio.sleep(0)  # more follows: other requests run first
    except TimeoutError:
        raise BodyTooSlow(f"The body was not here after {CLIENT_BODY_S:.0f} s.") from None
    return b"".join(pieces)


async def read_json(request: web.Request, shape: type[_T], *, limit: int = CONTROL_BODY_BYTES_MAX) -> _T:
    """A small JSON body, decoded as `shape`. Raises InvalidJson or InvalidField."""
    body = await read_body(request, limit=limit)
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise InvalidField(f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(f"The body is not valid JSON: {error}") from None


def whole_number(request: web.Request, name: str, *, default: int, most: int) -> int:
    """A number of the query string, from 1 to `most`. Raises InvalidField."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= most):
        raise InvalidField(f"'{name}' is a number from 1 to {most:,}.", param=name)
    return int(text)


def json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def error_reply(
    error: SparewattError, headers: Mapping[str, str] | None = None, *, shaped: ShapedError | None = None
) -> web.Response:
    """`shaped`: as another protocol says it; else OpenAI's error object."""
    status, body = (error.status, error_body(error)) if shaped is None else shaped
    return refusal_reply(error, body, {**error_headers(error), **(headers or {})}, status=status)


def refusal_reply(
    error: SparewattError, body: Mapping[str, object], headers: Mapping[str, str], *, status: int | None = None
) -> web.Response:
    """With an error object and headers of the caller's."""
    reply = json_reply(body, status=status or error.status, headers=headers)
    reply[ERROR_CODE] = error.code
    return reply
