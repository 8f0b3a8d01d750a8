"""The adapter for vLLM. Listed models are loaded; `/metrics` has its load and the size of its KV cache.

How many requests it runs at once (`max_num_seqs`) is in `/server_info`, which it serves in its development mode only
(VLLM_SERVER_DEV_MODE=1). Field names as in 0.6 to 0.27.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import SLOTS_MAX, OpenAIBackend, is_owned_by
from sparewatt.node.backends.prometheus_page import positive_int, totals_of
from sparewatt.protocol.link.node_report import Capability

_ALWAYS: tuple[Capability, ...] = ("chat", "completions", "json_schema", "logprobs")


class _SchedulerConfig(msgspec.Struct, frozen=True):
    max_num_seqs: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None
    enable_chunked_prefill: bool | None = None


class _ModelConfig(msgspec.Struct, frozen=True):
    quantization: str | None = None


class _VllmConfig(msgspec.Struct, frozen=True):
    scheduler_config: _SchedulerConfig = _SchedulerConfig()
    vllm_model_config: _ModelConfig = msgspec.field(name="model_config", default=_ModelConfig())


class _ServerInfo(msgspec.Struct, frozen=True):
    vllm_config: _VllmConfig = _VllmConfig()


class VllmBackend(OpenAIBackend):
    kind: ClassVar[str] = "vllm"
    capabilities_to_probe = ("tools", "embeddings")  # depend on its flags and on the kind of model; it reports neither
    _config = _VllmConfig()
    _engines: Sequence[Mapping[str, str]] | None = None
    """The labels of each engine's cache as last read; None before."""

    @staticmethod
    async def recognises(server: BackendHttpClient) -> bool:
        return await is_owned_by(server, "vllm")

    async def models(self) -> list[BackendModel]:
        try:
            models = await super().models()
        except BackendError:
            self._engines = None  # it may come back with another configuration
            raise
        await self._read_config()
        engine = next(iter(self._engines or ()), {})
        is_cached = engine.get("enable_prefix_caching") == "True"
        return [
            replace(
                model,
                capabilities=_ALWAYS,
                quantization=self._config.vllm_model_config.quantization,
                prefix_cache_tokens=(self._context_tokens or 0) if is_cached else 0,
                kv_bits=8 if engine.get("cache_dtype", "").startswith("fp8") else 16,
            )
            for model in _with_base_weights(models)
        ]

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
            engines=max(1, len(self._engines or ())),
            chunks_prefill=self._config.scheduler_config.enable_chunked_prefill,
        )

    async def slots(self) -> int | None:
        each = self._config.scheduler_config.max_num_seqs
        return min(SLOTS_MAX, each * max(1, len(self._engines or ()))) if each is not None else None

    @property
    def _context_tokens(self) -> int | None:
        """Of all engines; None if one does not say."""
        each = [_cache_tokens(engine) for engine in self._engines or ()]
        return sum(tokens for tokens in each if tokens) if each and all(each) else None

    async def _read_config(self) -> None:
        """The configuration is asked for once after each start of the server: without its flag there is none."""
        page = await self._metrics()
        engines = page.labels("vllm:cache_config_info") if page is not None else []
        if engines == self._engines:
            return
        self._engines = engines
        try:
            self._config = (await self.read("/server_info?config_format=json", _ServerInfo)).vllm_config
        except BackendError:
            self._config = _VllmConfig()


def _cache_tokens(engine: Mapping[str, str]) -> int | None:
    """What one engine's KV cache holds: newer versions say so, of older ones it is the blocks and their size."""
    blocks, block_size = positive_int(engine.get("num_gpu_blocks")), positive_int(engine.get("block_size"))
    by_blocks = blocks * block_size if blocks and block_size else None
    tokens = positive_int(engine.get("kv_cache_size_tokens")) or by_blocks
    return tokens if tokens is None or tokens <= 1 << 40 else None


def _with_base_weights(models: Sequence[BackendModel]) -> list[BackendModel]:
    """An adapter (LoRA) is listed as a model of its own, under its own path, but runs on the weights of the first."""
    base = models[0].weights_name if models else None
    return [replace(model, weights_name=base) for model in models]
