"""The node's real adapters over rendered pages instead of HTTP, for simulated nodes and for tests of the pages.

Nothing waits, so a question is answered at once (`answer_now`) and needs no event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import aiohttp

from sparewatt.node.backends.backend import BadBackendReply
from sparewatt.node.backends.discovery import ADAPTERS
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.sim.servers.facts import ServerKind
from sparewatt.sim.servers.pages import Pages

_T = TypeVar("_T")
_ADAPTER_BY_KIND: dict[str, type[OpenAIBackend]] = {adapter.kind: adapter for adapter in ADAPTERS}
_NO_SESSION = cast(aiohttp.ClientSession, None)


class PageClient(BackendHttpClient):
    """Answers from pages; a path without a page is a 404."""

    def __init__(self, pages: Callable[[], Pages]) -> None:
        super().__init__("http://rendered", _NO_SESSION)
        self._pages = pages

    async def fetch(self, path: str, body: object = None) -> bytes:  # noqa: ARG002 (each server has one model)
        page = self._pages().get(path)
        if page is None:
            raise BadBackendReply(f"{path} answered 404")
        return page

    async def status_of(self, path: str) -> int | None:
        return 200 if path in self._pages() else 404


def paged_adapter(kind: ServerKind, pages: Callable[[], Pages]) -> OpenAIBackend:
    """The adapter that a node uses for this kind, which reads `pages()` at each question."""
    client = PageClient(pages)
    adapter = _ADAPTER_BY_KIND[kind]("http://rendered", _NO_SESSION)
    adapter.fetch = client.fetch  # type: ignore[method-assign]  # the transport is all that differs
    adapter.status_of = client.status_of  # type: ignore[method-assign]
    return adapter


def answer_now(question: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits."""
    try:
        question.send(None)
    except StopIteration as end:
        return cast(_T, end.value)
    question.close()
    raise RuntimeError("A rendered page cannot be waited for.")
