"""Which kind of model server runs at an address, and which ones run on this machine.

A server is recognised by its answers, not by its port. One of an unknown kind is used as any OpenAI-compatible server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from sparewatt.core.clock import Clock
from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel, BackendReply
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.llama_cpp import LlamaCppBackend
from sparewatt.node.backends.lm_studio import LmStudioBackend
from sparewatt.node.backends.ollama import OllamaBackend
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.backends.sglang import SglangBackend
from sparewatt.node.backends.vllm import VllmBackend
from sparewatt.protocol.link.node_report import Capability

KNOWN_PORTS = {"llama.cpp": 8080, "Ollama": 11434, "vLLM": 8000, "SGLang": 30000, "LM Studio": 1234}
ADAPTERS = (LlamaCppBackend, SglangBackend, VllmBackend, LmStudioBackend, OllamaBackend)
"""The first that recognises a server wins, so those whose API others imitate (as Ollama's) come late."""
REDETECT_S = 60.0
"""A server of an unknown kind may only have been starting: detection is repeated after this long."""


async def detect_backend(url: str, session: aiohttp.ClientSession) -> OpenAIBackend:
    """The adapter for the server at `url`; the plain one if none recognises it. Raises nothing."""
    server = BackendHttpClient(url, session)
    recognised = await asyncio.gather(*(adapter.recognises(server) for adapter in ADAPTERS))
    adapters = [adapter for adapter, is_it in zip(ADAPTERS, recognised, strict=True) if is_it]
    found: OpenAIBackend = (adapters or [OpenAIBackend])[0](url, session)
    return found


class AutoDetectedBackend:
    """Whatever server runs at one address: its owner may stop one and start another there. Implements Backend."""

    aborts_on_disconnect = False

    def __init__(self, url: str, session: aiohttp.ClientSession, *, clock: Clock) -> None:
        self._url = url
        self._session = session
        self._clock = clock
        self._adapter = OpenAIBackend(url, session)
        self._detect_at_s: float | None = None
        """When to detect again; None is at once."""

    @property
    def kind(self) -> str:
        return self._adapter.kind

    @property
    def capabilities_to_probe(self) -> tuple[Capability, ...]:
        return self._adapter.capabilities_to_probe

    async def models(self) -> list[BackendModel]:
        """Raises BackendError, after which the next call detects again."""
        if self._detect_at_s is None or self._clock.now_s() >= self._detect_at_s:
            await self._detect()
        try:
            return await self._adapter.models()
        except BackendError:
            self._detect_at_s = None
            raise

    async def load(self) -> BackendLoad | None:
        return await self._adapter.load()

    async def slots(self) -> int | None:
        return await self._adapter.slots()

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[BackendReply]:
        return self._adapter.post(path, body)

    async def _detect(self) -> None:
        """An adapter of the same kind is not replaced: it has cached earlier answers."""
        found = await detect_backend(self._url, self._session)
        if found.kind != self._adapter.kind:
            self._adapter = found
        is_known = type(found) is not OpenAIBackend
        self._detect_at_s = float("inf") if is_known else self._clock.now_s() + REDETECT_S


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    url: str
    kind: str
    models: int
    warm: int


async def find_local_servers(
    session: aiohttp.ClientSession, *, ports: Mapping[str, int] | None = None, env: Mapping[str, str] | None = None
) -> list[DiscoveredServer]:
    """All servers with models on the usual ports of this machine; those with a loaded model first."""
    env = os.environ if env is None else env
    urls = [f"http://127.0.0.1:{port}" for port in (KNOWN_PORTS if ports is None else ports).values()]
    urls += [url for url in (_ollama_url(env.get("OLLAMA_HOST")),) if url is not None and url not in urls]
    answers = await asyncio.gather(*(inspect_server(url, session) for url in urls))
    return sorted((found for found in answers if found is not None and found.models), key=lambda found: not found.warm)


async def inspect_server(url: str, session: aiohttp.ClientSession) -> DiscoveredServer | None:
    """None if no server lists its models there."""
    adapter = await detect_backend(url, session)
    try:
        models = await adapter.models()
    except BackendError:
        return None
    return DiscoveredServer(url, adapter.kind, len(models), sum(model.state == "warm" for model in models))


def _ollama_url(host: str | None) -> str | None:
    """From Ollama's own variable for the address it listens on; "every address" includes this machine."""
    if not host:
        return None
    try:
        parts = urlsplit(host if "//" in host else f"http://{host}")
        port, name = parts.port or KNOWN_PORTS["Ollama"], parts.hostname
    except ValueError:
        return None
    if parts.scheme != "http" or name not in ("127.0.0.1", "0.0.0.0", "localhost", "::", "::1"):  # noqa: S104 (a name)
        return None
    return f"http://127.0.0.1:{port}"


def describe_servers(found: Sequence[DiscoveredServer]) -> str:
    return ", ".join(f"{each.kind} at {each.url}" for each in found)
