"""Talking HTTP to a model server that may hang, lie or be gone: every question has a bound in time and size."""

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

_T = TypeVar("_T")
ASK_S = 5.0
ANSWER_BYTES_MAX = 4 << 20
_FAULTS = (aiohttp.ClientError, TimeoutError, OSError)


class BackendHttpClient:
    """One address. Give it a session that uses no connection twice: llama.cpp closes them."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self._base = base_url.rstrip("/").removesuffix("/v1")
        self._session = session

    @property
    def base_url(self) -> str:
        return self._base

    async def get(self, path: str) -> bytes:
        """Raises BackendError, also for every answer but 200."""
        return await self._ask("GET", path, None)

    async def read(self, path: str, shape: type[_T], *, body: object = None) -> _T:
        """JSON of a known shape; with a body it is posted. Raises BackendError."""
        sent = None if body is None else msgspec.json.encode(body)
        return decode(await self._ask("GET" if sent is None else "POST", path, sent), shape)

    async def status_of(self, path: str) -> int | None:
        """None if there was no answer."""
        try:
            async with self._session.get(self._base + path, timeout=_total(ASK_S)) as reply:
                return reply.status
        except _FAULTS:
            return None

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        """Raises BackendError. Leaving the context early stops the generation."""
        headers = {"content-type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S)
        try:
            reply = await self._session.post(
                self._base + path, data=body, headers=headers, timeout=timeout, allow_redirects=False
            )
        except _FAULTS as error:
            raise _failure(error, "no answer from the model server") from None
        try:
            yield BackendReply(reply.status, reply.content_type, _chunks(reply))
        finally:
            reply.close()  # not release: an unread rest means that the generation must stop

    async def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"content-type": "application/json"} if body is not None else None
        try:
            async with self._session.request(
                method, self._base + path, data=body, headers=headers, timeout=_total(ASK_S), allow_redirects=False
            ) as reply:
                answer = await _read_whole(reply)
        except _FAULTS as error:
            raise _failure(error, f"{path} did not answer") from None
        if reply.status != 200:
            raise BadBackendReply(f"{path} answered {reply.status}")
        return answer


def _total(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds)


async def _read_whole(reply: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in reply.content.iter_any():
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise BadBackendReply(f"the model server's answer is over {ANSWER_BYTES_MAX >> 20} MiB")
    return bytes(body)


async def _chunks(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in reply.content.iter_any():
            yield chunk
    except _FAULTS as error:
        raise BadBackendReply(f"the model server stopped in the middle ({type(error).__name__})") from None


def _failure(error: Exception, what: str) -> BackendError:
    """A server that sent something unreadable was there; one that sent nothing was not."""
    has_answered = isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError)
    kind = (
        BadBackendReply if has_answered else BackendTimeout if isinstance(error, TimeoutError) else BackendUnreachable
    )
    return kind(f"{what} ({type(error).__name__})")


def decode(body: bytes, shape: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadBackendReply("the model server's answer has an unknown shape") from None
