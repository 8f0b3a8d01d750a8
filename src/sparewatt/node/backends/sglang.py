"""The adapter for SGLang. `/server_info` (before: `/get_server_info`) has its limits; `/metrics` needs a flag."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel, BadBackendReply
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import DEFAULT_SLOTS, SLOTS_MAX, OpenAIBackend
from sparewatt.node.backends.prometheus_page import totals_of
from sparewatt.protocol.link.node_report import Capability

_T = TypeVar("_T")
_Tokens = Annotated[int, Meta(ge=0, le=1 << 40)]
_GB = 10**9
_ALWAYS: tuple[Capability, ...] = ("completions", "json_schema", "logprobs")


class _ModelInfo(msgspec.Struct, frozen=True):
    model_path: str
    is_generation: bool
    has_image_understanding: bool = False


class _Memory(msgspec.Struct, frozen=True):
    weight: float = 0.0
    """In GB, as `kvcache` is."""
    kvcache: float = 0.0
    token_capacity: _Tokens = 0


class _State(msgspec.Struct, frozen=True):
    memory_usage: _Memory | None = None
    effective_max_running_requests_per_dp: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None


class _ServerInfo(msgspec.Struct, frozen=True):
    internal_states: Annotated[list[_State], Meta(max_length=1024)] = []
    max_total_num_tokens: _Tokens | None = None
    disable_radix_cache: bool = False
    quantization: str | None = None
    tool_call_parser: str | None = None


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
        page = await self._metrics()
        running = page.count("sglang:num_running_reqs") if page is not None else None
        if page is None or running is None:
            return None
        return BackendLoad(
            running=running,
            slots=await self.slots(),
            context_tokens=self._info.max_total_num_tokens or None,
            queued=page.count("sglang:num_queue_reqs") or 0,
            kv_used=page.share("sglang:full_token_usage", "sglang:token_usage"),
            totals=totals_of(page, "sglang"),
        )

    async def slots(self) -> int:
        at_once = sum(state.effective_max_running_requests_per_dp or 0 for state in self._info.internal_states)
        return min(SLOTS_MAX, at_once) or DEFAULT_SLOTS

    async def _read_either(self, path: str, older_path: str, shape: type[_T]) -> _T:
        try:
            return await self.read(path, shape)
        except BadBackendReply:
            return await self.read(older_path, shape)


def _describe(model: BackendModel, served: _ModelInfo, info: _ServerInfo) -> BackendModel:
    memory = next((state.memory_usage for state in info.internal_states if state.memory_usage is not None), _Memory())
    can: list[Capability] = ["chat", *_ALWAYS] if served.is_generation else ["embeddings"]
    can += ["tools"] if served.is_generation and info.tool_call_parser else []
    can += ["vision"] if served.has_image_understanding else []
    capacity = memory.token_capacity or info.max_total_num_tokens or 0
    return replace(
        model,
        quantization=info.quantization,
        weights_bytes=max(0, int(memory.weight * _GB)),
        kv_bytes_per_token=int(memory.kvcache * _GB / capacity) if capacity and memory.kvcache > 0 else 0,
        prefix_cache_tokens=0 if info.disable_radix_cache else capacity,
        capabilities=tuple(can),
    )
