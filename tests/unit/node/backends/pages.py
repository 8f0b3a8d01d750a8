"""A model server that answers each path with a fixed page, for adapters under test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from sparewatt.node.backends.openai import OpenAIBackend

_B = TypeVar("_B", bound=OpenAIBackend)
Pages = dict[str, Any]
"""By path: text, or what becomes JSON. Another path is 404."""


@asynccontextmanager
async def adapter_over(adapter: type[_B], pages: Pages) -> AsyncIterator[_B]:
    """An adapter of that kind; a test may change the pages meanwhile, and read the requested paths in `requested`."""

    async def answer(request: web.Request) -> web.Response:
        pages.setdefault("requested", []).append(request.path)
        page = pages.get(request.path)
        if page is None:
            return web.Response(status=404, text='{"detail":"Not Found"}')
        return web.Response(body=page.encode() if isinstance(page, str) else msgspec.json.encode(page))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield adapter(str(server.make_url("/")), session)


def labels(**values: object) -> str:
    return ",".join(f'{name}="{value}"' for name, value in values.items())


def listed(*ids: str, **more: object) -> Mapping[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", **more} for name in ids]}
