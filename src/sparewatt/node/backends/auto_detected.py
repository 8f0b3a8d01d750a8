"""The server behind one address, whatever runs there now. An owner may stop one and start another on the same port."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import aiohttp

from sparewatt.core.clock import Clock
from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel, BackendReply
from sparewatt.node.backends.discovery import detect_backend
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.protocol.link.node_report import Capability

REDETECT_S = 60.0
"""A server that nobody knew may have been starting: it is looked at again after this long."""


class AutoDetectedBackend:
    """Implements Backend."""

    aborts_on_disconnect = False

    def __init__(self, url: str, session: aiohttp.ClientSession, *, clock: Clock) -> None:
        self._url = url
        self._session = session
        self._clock = clock
        self._adapter = OpenAIBackend(url, session)
        self._detect_at_s: float | None = None
        """When to ask again which server this is; None is at once."""

    @property
    def base_url(self) -> str:
        return self._adapter.base_url

    @property
    def kind(self) -> str:
        return self._adapter.kind

    @property
    def capabilities_to_probe(self) -> tuple[Capability, ...]:
        return self._adapter.capabilities_to_probe

    async def models(self) -> list[BackendModel]:
        """Raises BackendError. After one, whoever answers next is looked at anew."""
        if self._detect_at_s is None or self._clock.now_s() >= self._detect_at_s:
            await self._detect()
        try:
            return await self._adapter.models()
        except BackendError:
            self._detect_at_s = None
            raise

    async def load(self) -> BackendLoad | None:
        return await self._adapter.load()

    async def slots(self) -> int:
        return await self._adapter.slots()

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[BackendReply]:
        return self._adapter.post(path, body)

    async def _detect(self) -> None:
        """The adapter stays if it is the same kind: it remembers what it was told."""
        found = await detect_backend(self._url, self._session)
        if found.kind != self._adapter.kind:
            self._adapter = found
        is_known = type(found) is not OpenAIBackend
        self._detect_at_s = float("inf") if is_known else self._clock.now_s() + REDETECT_S
