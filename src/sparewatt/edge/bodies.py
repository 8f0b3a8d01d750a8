"""What aiohttp's handlers read of a request: bounded bodies, JSON of a known shape, numbers of the query string."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from aiohttp import web

from sparewatt.core.errors import BodyTooLarge, BodyTooSlow, InvalidField, InvalidJson
from sparewatt.core.limits import CLIENT_BODY_S, CONTROL_BODY_BYTES_MAX, READ_PER_TICK_BYTES
from sparewatt.protocol.openai.json_complexity import JsonComplexityCheck

_T = TypeVar("_T")


async def read_body(request: web.Request, *, limit: int) -> bytes:
    """The whole body, refused as soon as it is known to be too large, or to hold too many values for a decoder."""
    too_large = BodyTooLarge(f"The body is larger than {limit // (1 << 20)} MiB." if limit >= 1 << 20 else "Too large.")
    if request.content_length is not None and request.content_length > limit:
        raise too_large
    body, size, crowd = [], 0, JsonComplexityCheck()
    try:
        async with asyncio.timeout(CLIENT_BODY_S):
            async for piece in request.content.iter_chunked(READ_PER_TICK_BYTES):
                body.append(piece)
                size += len(piece)
                if size > limit:
                    raise too_large
                crowd.feed(piece)
                if len(piece) == READ_PER_TICK_BYTES:
                    await asyncio.sleep(0)  # there is more: let others run in between
    except TimeoutError:
        raise BodyTooSlow(f"The body was not here after {CLIENT_BODY_S:.0f} s.") from None
    return b"".join(body)


async def read_json(request: web.Request, shape: type[_T], *, limit: int = CONTROL_BODY_BYTES_MAX) -> _T:
    """A small JSON body of a known shape. Raises InvalidJson or InvalidField."""
    body = await read_body(request, limit=limit)
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except msgspec.ValidationError as error:
        raise InvalidField(f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(f"The body is not valid JSON: {error}") from None


def whole_number(request: web.Request, name: str, *, default: int, most: int) -> int:
    """From the query string, from 1 to `most`. Raises InvalidField."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= most):
        raise InvalidField(f"'{name}' is a number from 1 to {most:,}.", param=name)
    return int(text)
