"""The interface to a model server. Every adapter passes the same contract suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from sparewatt.protocol.link.node_report import Capability, ModelState


class BackendError(Exception):
    """The model server could not be reached, or its reply made no sense. The message holds nothing of a prompt."""


class BackendUnreachable(BackendError):
    pass


class BackendTimeout(BackendUnreachable):
    """It did not answer in time: it hangs, or is busy."""


class BadBackendReply(BackendError):
    """It answered nonsense, or stopped in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class BackendModel:
    id: str
    state: ModelState
    context_length: int | None
    quantization: str | None
    weights_bytes: int
    """0 if the server does not say; so are the next and `prefix_cache_tokens`."""
    kv_bytes_per_token: int
    parameters: int | None
    prefix_cache_tokens: int = 0
    """Size of the server's prefix cache for prompts."""
    capabilities: tuple[Capability, ...] | None = None
    """None if nothing is known beyond chat."""
    capabilities_complete: bool = False
    """Whether the list is exhaustive, so that no capability has to be probed."""
    weights_digest: str | None = None
    """`sha256:…` of the file of weights, where the server reports it."""
    weights_name: str | None = None
    """What the server loaded, where it reports that: a repository or a file. `id` may be an alias."""
    kv_bits: int = 16
    """Of one value in its KV cache."""
    active_parameters: int | None = None
    """Those used for one token, if not all: of a mixture of experts."""


@dataclass(frozen=True, slots=True)
class BackendTotals:
    """Counters since the server started, where it reports them. Each sum of times has its count."""

    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    first_token_s: float | None = None
    first_tokens: float | None = None
    request_s: float | None = None
    requests: float | None = None


@dataclass(frozen=True, slots=True)
class BackendLoad:
    """The requests that the server runs now, from this node and from others, and how many it can run at once."""

    running: int
    slots: int | None = None
    """None if the server does not say."""
    context_tokens: int | None = None
    """Tokens that fit into its KV cache, all slots together, where it reports that."""
    queued: int = 0
    kv_used: float | None = None
    """Share of the KV cache in use."""
    totals: BackendTotals = BackendTotals()
    engines: int = 1
    """Replicas behind its address (data parallelism), each with slots and a KV cache; `context_tokens` has them all."""
    chunks_prefill: bool | None = None
    """Whether it reads long prompts in chunks, between the steps of other answers, where it says so."""


@dataclass(frozen=True, slots=True)
class BackendReply:
    status: int
    content_type: str
    chunks: AsyncIterator[bytes]
    """Raises BadBackendReply if the server stops in the middle."""


class Backend(Protocol):
    @property
    def kind(self) -> str:
        """`vllm`, `ollama`, …"""
        ...

    aborts_on_disconnect: bool
    """Whether closing the connection stops an answer that is not streamed. If not, the node requests streams only."""

    @property
    def capabilities_to_probe(self) -> tuple[Capability, ...]:
        """What this kind of server may be able to do, but does not report."""
        ...

    async def models(self) -> list[BackendModel]:
        """Raises BackendError."""
        ...

    async def load(self) -> BackendLoad | None:
        """None if the server does not report it."""
        ...

    async def slots(self) -> int | None:
        """How many requests it runs at once; None if it does not say. Raises nothing."""
        ...

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[BackendReply]:
        """Raises BackendError. Leaving the context early stops the generation."""
        ...
