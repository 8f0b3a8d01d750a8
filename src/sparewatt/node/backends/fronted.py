"""The server behind one address, whatever runs there now. An owner may stop one and start another on the same port."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import aiohttp

from sparewatt.core.clock import Clock
from sparewatt.node.backends.finding import identify
from sparewatt.node.backends.model import BackendError, BackendLoad, BackendModel, BackendReply
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.protocol.node import Capability

LOOK_AGAIN_S = 60.0
"""A server that nobody knew may have been starting: it is looked at again after this long."""


class FrontedServer:
    """Implements Backend."""

    stops_whole_answers = False

    def __init__(self, url: str, session: aiohttp.ClientSession, *, clock: Clock) -> None:
        self._url = url
        self._session = session
        self._clock = clock
        self._adapter = OpenAIBackend(url, session)
        self._look_at_s: float | None = None
        """When to ask again which server this is; None is at once."""

    @property
    def base_url(self) -> str:
        return self._adapter.base_url

    @property
    def kind(self) -> str:
        return self._adapter.kind

    @property
    def to_try(self) -> tuple[Capability, ...]:
        return self._adapter.to_try

    async def models(self) -> list[BackendModel]:
        """Raises BackendError. After one, whoever answers next is looked at anew."""
        if self._look_at_s is None or self._clock.now_s() >= self._look_at_s:
            await self._identify()
        try:
            return await self._adapter.models()
        except BackendError:
            self._look_at_s = None
            raise

    async def load(self) -> BackendLoad | None:
        return await self._adapter.load()

    async def slots(self) -> int:
        return await self._adapter.slots()

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[BackendReply]:
        return self._adapter.post(path, body)

    async def _identify(self) -> None:
        """The adapter stays if it is the same kind: it remembers what it was told."""
        found = await identify(self._url, self._session)
        if found.kind != self._adapter.kind:
            self._adapter = found
        is_known = type(found) is not OpenAIBackend
        self._look_at_s = float("inf") if is_known else self._clock.now_s() + LOOK_AGAIN_S
