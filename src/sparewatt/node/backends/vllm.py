"""The adapter for vLLM. Listed models are loaded; `/metrics` has its load and the size of its KV cache."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from sparewatt.node.backends.backend import BackendLoad, BackendModel
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import DEFAULT_SLOTS, OpenAIBackend, is_owned_by
from sparewatt.node.backends.prometheus_page import positive_int, totals_of
from sparewatt.protocol.link.node_report import Capability

SLOTS_MAX = 256
"""vLLM's own default for concurrent requests."""
_ALWAYS: tuple[Capability, ...] = ("chat", "completions", "json_schema", "logprobs")


class VllmBackend(OpenAIBackend):
    kind: ClassVar[str] = "vllm"
    capabilities_to_probe = ("tools", "embeddings")  # depend on its flags and on the kind of model; it reports neither
    _context_tokens: int | None = None
    _model_len: int | None = None

    @staticmethod
    async def recognises(server: BackendHttpClient) -> bool:
        return await is_owned_by(server, "vllm")

    async def models(self) -> list[BackendModel]:
        models = await super().models()
        cached = await self._cached_tokens()
        self._model_len = max((model.context_length or 0 for model in models), default=0) or None
        return [replace(model, capabilities=_ALWAYS, prefix_cache_tokens=cached) for model in models]

    async def load(self) -> BackendLoad | None:
        page = await self._metrics()
        running = page.count("vllm:num_requests_running") if page is not None else None
        if page is None or running is None:
            return None
        return BackendLoad(
            running=running,
            slots=await self.slots(),
            context_tokens=self._context_tokens,
            queued=page.count("vllm:num_requests_waiting") or 0,
            kv_used=page.share("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            totals=totals_of(page, "vllm"),
        )

    async def slots(self) -> int:
        """How many whole contexts fit into its KV cache: vLLM's own figure for its greatest concurrency."""
        if self._context_tokens is None or self._model_len is None:
            return DEFAULT_SLOTS
        return max(1, min(SLOTS_MAX, self._context_tokens // self._model_len))

    async def _cached_tokens(self) -> int:
        """With prefix caching, all of the KV cache may hold earlier prompts."""
        page = await self._metrics()
        config = page.labels("vllm:cache_config_info") if page is not None else {}
        blocks, block_size = positive_int(config.get("num_gpu_blocks")), positive_int(config.get("block_size"))
        self._context_tokens = positive_int(config.get("kv_cache_size_tokens")) or (
            blocks * block_size if blocks and block_size else None
        )
        return (self._context_tokens or 0) if config.get("enable_prefix_caching") == "True" else 0
