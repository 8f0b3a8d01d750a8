"""What the agent needs of a model server. Every adapter passes the same contract suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from sparewatt.protocol.link.node_report import Capability, ModelState


class BackendError(Exception):
    """The model server could not be reached or made no sense. The message names no content."""


class BackendUnreachable(BackendError):
    pass


class BackendTimeout(BackendUnreachable):
    """It did not answer in time: it hangs, or has its hands full."""


class BadBackendReply(BackendError):
    """It answered, then stopped in the middle, or answered nonsense."""


@dataclass(frozen=True, slots=True)
class BackendModel:
    id: str
    state: ModelState
    context_length: int | None
    quantization: str | None
    weights_bytes: int
    kv_bytes_per_token: int
    parameters: int | None
    prefix_cache_tokens: int = 0
    """Tokens of prompts that the server keeps once it has read them; 0 if it keeps none or does not say."""
    capabilities: tuple[Capability, ...] | None = None
    """None if nothing is known of it beyond chat."""
    capabilities_complete: bool = False
    """Whether those are all: then nothing else has to be tried."""
    weights_digest: str | None = None
    """`sha256:…` of the file of weights, where the server tells."""


@dataclass(frozen=True, slots=True)
class BackendTotals:
    """What a server has counted since it started, where it tells. Times are sums, beside how many they are of."""

    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    first_token_s: float | None = None
    first_tokens: float | None = None
    request_s: float | None = None
    requests: float | None = None


@dataclass(frozen=True, slots=True)
class BackendLoad:
    """Requests that the server works on now, ours and others', and how many it can work on at once."""

    running: int
    slots: int
    context_tokens: int | None = None
    """Tokens that fit into memory, all slots together, where the server tells."""
    queued: int = 0
    """Requests that it has taken and not begun."""
    kv_used: float | None = None
    """Share of the memory for contexts that is in use."""
    totals: BackendTotals = BackendTotals()


@dataclass(frozen=True, slots=True)
class BackendReply:
    status: int
    content_type: str
    chunks: AsyncIterator[bytes]
    """Raises BackendBroke if the server stops in the middle."""


class Backend(Protocol):
    @property
    def kind(self) -> str:
        """Which server it is: `vllm`, `ollama`, …"""
        ...

    aborts_on_disconnect: bool
    """Whether a client that leaves ends an answer that is not streamed. If not, the node asks for streams only."""

    @property
    def capabilities_to_probe(self) -> tuple[Capability, ...]:
        """What this kind of server may or may not do, and does not tell: to be found out by asking it once."""
        ...

    async def models(self) -> list[BackendModel]:
        """Raises BackendError."""
        ...

    async def load(self) -> BackendLoad | None:
        """None if the server does not tell."""
        ...

    async def slots(self) -> int:
        """How many requests it works on at once, or a cautious guess. Raises nothing."""
        ...

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[BackendReply]:
        """Raises BackendError. Leaving the context early stops the generation."""
        ...
