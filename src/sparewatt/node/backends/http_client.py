"""HTTP to a model server that may hang, lie or be gone: every request is bounded in time and size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from sparewatt.node.backends.backend import (
    BackendError,
    BackendReply,
    BackendTimeout,
    BackendUnreachable,
    BadBackendReply,
)
from sparewatt.node.backends.reply_stream import collect

_T = TypeVar("_T")
ASK_S = 5.0
ANSWER_BYTES_MAX = 4 << 20
_FAULTS = (aiohttp.ClientError, TimeoutError, OSError)
_JSON = {"content-type": "application/json"}


class BackendHttpClient:
    """One base URL. Give it a session that reuses no connections: llama.cpp closes them."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self._base = base_url.rstrip("/").removesuffix("/v1")
        self._session = session

    async def fetch(self, path: str, body: object = None) -> bytes:
        """GET, or POST of a body as JSON. Raises BackendError, also for every status but 200."""
        method, data, headers = ("GET", None, None) if body is None else ("POST", msgspec.json.encode(body), _JSON)
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        try:
            async with self._session.request(
                method, self._base + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as reply:
                answer = await collect(reply.content.iter_any(), bytes_max=ANSWER_BYTES_MAX)
        except _FAULTS as error:
            raise _failure(error, f"{path} did not answer") from None
        if reply.status != 200:
            raise BadBackendReply(f"{path} answered {reply.status}")
        return answer

    async def read(self, path: str, shape: type[_T], *, body: object = None) -> _T:
        """As `fetch`, for JSON of a known shape."""
        try:
            return msgspec.json.decode(await self.fetch(path, body), type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadBackendReply("the model server's answer has an unknown shape") from None

    async def serves(self, path: str, shape: type[object]) -> bool:
        """Whether it answers with JSON of this shape."""
        try:
            await self.read(path, shape)
        except BackendError:
            return False
        return True

    async def status_of(self, path: str) -> int | None:
        """None if there was no answer."""
        try:
            async with self._session.get(self._base + path, timeout=aiohttp.ClientTimeout(total=ASK_S)) as reply:
                return reply.status
        except _FAULTS:
            return None

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        """Raises BackendError. Leaving the context early stops the generation."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S)
        try:
            reply = await self._session.post(
                self._base + path, data=body, headers=_JSON, timeout=timeout, allow_redirects=False
            )
        except _FAULTS as error:
            raise _failure(error, "no answer from the model server") from None
        try:
            yield BackendReply(reply.status, reply.content_type, _chunks(reply))
        finally:
            reply.close()  # not release: with unread data left, the generation must stop


async def _chunks(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in reply.content.iter_any():
            yield chunk
    except _FAULTS as error:
        raise BadBackendReply(f"the model server stopped in the middle ({type(error).__name__})") from None


def _failure(error: Exception, what: str) -> BackendError:
    """A server whose reply cannot be parsed was reached; one that sent nothing was not."""
    kind: type[BackendError] = BackendTimeout if isinstance(error, TimeoutError) else BackendUnreachable
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        kind = BadBackendReply
    return kind(f"{what} ({type(error).__name__})")
