"""Which model server is this, and is there one on this machine? Told by what it answers, not by its port.

A proxy or a server that nobody here knows is still fronted, as any OpenAI-compatible one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from sparewatt.node.backends.backend import BackendError
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.llama_cpp import LlamaCppBackend
from sparewatt.node.backends.lm_studio import LmStudioBackend
from sparewatt.node.backends.ollama import OllamaBackend
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.backends.sglang import SglangBackend
from sparewatt.node.backends.vllm import VllmBackend

KNOWN_PORTS = {"llama.cpp": 8080, "Ollama": 11434, "vLLM": 8000, "SGLang": 30000, "LM Studio": 1234}
ADAPTERS = (LlamaCppBackend, SglangBackend, VllmBackend, LmStudioBackend, OllamaBackend)
"""The first that recognises a server has it: those that others imitate (Ollama's API, say) come late."""


async def detect_backend(url: str, session: aiohttp.ClientSession) -> OpenAIBackend:
    """The adapter for what answers there; the plain one if nobody knows it. Raises nothing."""
    server = BackendHttpClient(url, session)
    known = await asyncio.gather(*(adapter.recognises(server) for adapter in ADAPTERS))
    for adapter, is_it in zip(ADAPTERS, known, strict=True):
        if is_it:
            found: OpenAIBackend = adapter(url, session)
            return found
    return OpenAIBackend(url, session)


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    url: str
    kind: str
    models: int
    warm: int


async def find_local_servers(
    session: aiohttp.ClientSession, *, ports: Mapping[str, int] | None = None, env: Mapping[str, str] | None = None
) -> list[DiscoveredServer]:
    """All that list models on the usual ports of this machine: those with a loaded model first."""
    env = os.environ if env is None else env
    urls = [f"http://127.0.0.1:{port}" for port in (KNOWN_PORTS if ports is None else ports).values()]
    urls += [url for url in (_ollama_url(env.get("OLLAMA_HOST")),) if url is not None and url not in urls]
    answers = await asyncio.gather(*(_inspect(url, session) for url in urls))
    return sorted((found for found in answers if found is not None), key=lambda found: not found.warm)


async def _inspect(url: str, session: aiohttp.ClientSession) -> DiscoveredServer | None:
    adapter = await detect_backend(url, session)
    try:
        models = await adapter.models()
    except BackendError:
        return None
    if not models:
        return None
    return DiscoveredServer(url, adapter.kind, len(models), sum(model.state == "warm" for model in models))


def _ollama_url(host: str | None) -> str | None:
    """Where Ollama's own variable says that it listens; "every address" is this machine as well."""
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
