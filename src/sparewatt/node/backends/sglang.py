"""The adapter for SGLang. `/server_info` (before: `/get_server_info`) has its limits; `/metrics` needs a flag.

Without that flag `/v1/loads` has its load. Field names as in 0.5.9 and in August 2026.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel, BadBackendReply
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import SIZE_MAX, SLOTS_MAX, OpenAIBackend
from sparewatt.node.backends.prometheus_page import totals_of
from sparewatt.protocol.link.node_report import COUNT_MAX, Capability

_T = TypeVar("_T")
_Tokens = Annotated[int, Meta(ge=0, le=1 << 40)]
_Count = Annotated[int, Meta(ge=0, le=1 << 20)]
_Gib = Annotated[float, Meta(ge=0, le=1 << 20)]
GIB = 1 << 30
"""What SGLang calls a GB."""
CARDS_MAX = 1024
_Cards = Annotated[int, Meta(ge=1, le=CARDS_MAX)]
_ALWAYS: tuple[Capability, ...] = ("completions", "json_schema", "logprobs")


class _ModelInfo(msgspec.Struct, frozen=True):
    model_path: str
    is_generation: bool
    has_image_understanding: bool = False


class _Memory(msgspec.Struct, frozen=True):
    """Of one card."""

    weight: _Gib = 0.0
    kvcache: _Gib = 0.0
    token_capacity: _Tokens = 0


class _State(msgspec.Struct, frozen=True):
    """Of one engine: there are several with data parallelism."""

    memory_usage: _Memory | None = None
    effective_max_running_requests_per_dp: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None


class _ServerInfo(msgspec.Struct, frozen=True):
    internal_states: Annotated[list[_State], Meta(max_length=1024)] = []
    max_total_num_tokens: _Tokens | None = None
    disable_radix_cache: bool = False
    quantization: str | None = None
    tool_call_parser: str | None = None
    kv_cache_dtype: str | None = None
    chunked_prefill_size: int | None = None
    tp_size: _Cards = 1
    pp_size: _Cards = 1


class _EngineLoad(msgspec.Struct, frozen=True):
    num_running_reqs: _Count
    num_waiting_reqs: _Count = 0
    token_usage: float | None = None


class _Loads(msgspec.Struct, frozen=True):
    loads: Annotated[list[_EngineLoad], Meta(min_length=1, max_length=1024)]


class SglangBackend(OpenAIBackend):
    kind: ClassVar[str] = "sglang"
    capabilities_to_probe = ()
    _info = _ServerInfo()

    @staticmethod
    async def recognises(server: BackendHttpClient) -> bool:
        return await server.serves("/model_info", _ModelInfo) or await server.serves("/get_model_info", _ModelInfo)

    async def models(self) -> list[BackendModel]:
        models = await super().models()
        served = await self._read_either("/model_info", "/get_model_info", _ModelInfo)
        with suppress(BackendError):  # then the last answer counts
            self._info = await self._read_either("/server_info", "/get_server_info", _ServerInfo)
        return [_describe(model, served, self._info) for model in models]

    async def load(self) -> BackendLoad | None:
        load = await self._load_by_metrics() or await self._load_by_loads()
        if load is None:
            return None
        chunk = self._info.chunked_prefill_size
        return replace(
            load,
            slots=await self.slots(),
            context_tokens=_token_capacity(self._info),
            engines=_engines(self._info),
            chunks_prefill=chunk > 0 if chunk is not None else None,
        )

    async def slots(self) -> int | None:
        at_once = sum(state.effective_max_running_requests_per_dp or 0 for state in self._info.internal_states)
        return min(SLOTS_MAX, at_once) or None

    async def _load_by_metrics(self) -> BackendLoad | None:
        page = await self._metrics()
        running = page.count("sglang:num_running_reqs") if page is not None else None
        if page is None or running is None:
            return None
        return BackendLoad(
            running=running,
            queued=page.count("sglang:num_queue_reqs") or 0,
            kv_used=page.share("sglang:full_token_usage", "sglang:token_usage"),
            totals=totals_of(page, "sglang"),
        )

    async def _load_by_loads(self) -> BackendLoad | None:
        try:
            loads = (await self.read("/v1/loads?include=core", _Loads)).loads
        except BackendError:
            return None
        used = [load.token_usage for load in loads if load.token_usage is not None]
        return BackendLoad(
            running=min(COUNT_MAX, sum(load.num_running_reqs for load in loads)),
            queued=min(COUNT_MAX, sum(load.num_waiting_reqs for load in loads)),
            kv_used=max(0.0, min(1.0, max(used))) if used else None,
        )

    async def _read_either(self, path: str, older_path: str, shape: type[_T]) -> _T:
        try:
            return await self.read(path, shape)
        except BadBackendReply:
            return await self.read(older_path, shape)


def _engines(info: _ServerInfo) -> int:
    return max(1, len(info.internal_states))


def _token_capacity(info: _ServerInfo) -> int | None:
    """Of all engines. The figure without them is that of the first."""
    each = [state.memory_usage.token_capacity for state in info.internal_states if state.memory_usage is not None]
    return sum(each) or (info.max_total_num_tokens or 0) * _engines(info) or None


def _describe(model: BackendModel, served: _ModelInfo, info: _ServerInfo) -> BackendModel:
    """What one card holds is a part of the weights and of each token's keys and values."""
    memory = next((state.memory_usage for state in info.internal_states if state.memory_usage is not None), _Memory())
    cards = info.tp_size * info.pp_size
    capacity = memory.token_capacity or info.max_total_num_tokens or 0
    can: list[Capability] = ["chat", *_ALWAYS] if served.is_generation else ["embeddings"]
    can += ["tools"] if served.is_generation and info.tool_call_parser else []
    can += ["vision"] if served.has_image_understanding else []
    return replace(
        model,
        quantization=info.quantization,
        weights_bytes=min(SIZE_MAX, int(memory.weight * GIB) * cards),
        kv_bytes_per_token=min(1 << 30, int(memory.kvcache * GIB * cards / capacity)) if capacity else 0,
        prefix_cache_tokens=0 if info.disable_radix_cache else _token_capacity(info) or 0,
        capabilities=tuple(can),
        weights_name=served.model_path,
        kv_bits=8 if (info.kv_cache_dtype or "").startswith("fp8") else 16,
    )
