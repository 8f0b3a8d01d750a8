"""The adapter for LM Studio. Its own list of models (`/api/v1/models`, before: `/api/v0/models`) has their state.

It answers an unknown path with 200 and an error inside, so only the shape of an answer counts.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.node.backends.backend import BackendLoad, BackendModel, BadBackendReply
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import SIZE_MAX, OpenAIBackend, within
from sparewatt.protocol.link.node_report import Capability

_ALWAYS: tuple[Capability, ...] = ("chat", "completions", "json_schema")
_Name = Annotated[str, Meta(min_length=1)]
_Context = Annotated[int, Meta(ge=0, le=1 << 26)]
_SIZES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


class _Quantization(msgspec.Struct, frozen=True):
    name: str | None = None


class _Config(msgspec.Struct, frozen=True):
    context_length: _Context | None = None
    parallel: Annotated[int, Meta(ge=1, le=4096)] | None = None


class _Instance(msgspec.Struct, frozen=True):
    id: _Name
    config: _Config = _Config()


class _Capabilities(msgspec.Struct, frozen=True):
    vision: bool = False
    trained_for_tool_use: bool = False


class _Model(msgspec.Struct, frozen=True):
    key: _Name
    type: str
    loaded_instances: Annotated[list[_Instance], Meta(max_length=64)]
    quantization: _Quantization | None = None
    size_bytes: Annotated[int, Meta(ge=0, le=1 << 50)] = 0
    params_string: str | None = None
    max_context_length: _Context | None = None
    capabilities: _Capabilities = _Capabilities()


class _Models(msgspec.Struct, frozen=True):
    models: Annotated[list[_Model], Meta(max_length=MODELS_PER_NODE_MAX)]


class _OldModel(msgspec.Struct, frozen=True):
    id: _Name
    state: str
    type: str
    quantization: str | None = None
    max_context_length: _Context | None = None
    loaded_context_length: _Context | None = None
    capabilities: list[str] = []


class _OldModels(msgspec.Struct, frozen=True):
    data: Annotated[list[_OldModel], Meta(max_length=MODELS_PER_NODE_MAX)]


class LmStudioBackend(OpenAIBackend):
    kind: ClassVar[str] = "lm-studio"
    capabilities_to_probe = ("logprobs",)
    _at_once: int | None = None

    @staticmethod
    async def recognises(server: BackendHttpClient) -> bool:
        return await server.serves("/api/v1/models", _Models) or await server.serves("/api/v0/models", _OldModels)

    async def models(self) -> list[BackendModel]:
        try:
            listed = await self.read("/api/v1/models", _Models)
        except BadBackendReply:
            return [_describe_old(model) for model in (await self.read("/api/v0/models", _OldModels)).data]
        parallel = [each.config.parallel for model in listed.models for each in model.loaded_instances]
        self._at_once = min((slots for slots in parallel if slots), default=None)
        return [each for model in listed.models for each in _describe(model)]

    async def load(self) -> BackendLoad | None:
        return None

    async def slots(self) -> int | None:
        """Of a loaded model; versions before 0.4 do not say, and run one request at a time."""
        return self._at_once


def _describe(model: _Model) -> list[BackendModel]:
    """Each loaded instance under its own name; a model without one under its key."""
    longest = model.max_context_length or None
    loaded = [(each.id, each.config.context_length or longest) for each in model.loaded_instances]
    return [
        BackendModel(
            id=name,
            state="warm" if loaded else "on_disk",
            context_length=context,
            quantization=model.quantization.name if model.quantization else None,
            weights_bytes=model.size_bytes,
            kv_bytes_per_token=0,
            parameters=parameters_of(model.params_string),
            capabilities=_capabilities(
                model.type, tools=model.capabilities.trained_for_tool_use, vision=model.capabilities.vision
            ),
            weights_name=model.key,
        )
        for name, context in loaded or [(model.key, longest)]
    ]


def _describe_old(model: _OldModel) -> BackendModel:
    is_loaded = model.state == "loaded"
    return BackendModel(
        id=model.id,
        state="warm" if is_loaded else "loading" if model.state == "loading" else "on_disk",
        context_length=(model.loaded_context_length if is_loaded else None) or model.max_context_length or None,
        quantization=model.quantization,
        weights_bytes=0,
        kv_bytes_per_token=0,
        parameters=None,
        capabilities=_capabilities(model.type, tools="tool_use" in model.capabilities, vision=model.type == "vlm"),
    )


def _capabilities(kind: str, *, tools: bool, vision: bool) -> tuple[Capability, ...]:
    if kind.startswith("embedding"):
        return ("embeddings",)
    may: dict[Capability, bool] = {"tools": tools, "vision": vision}
    return (*_ALWAYS, *(each for each, has_it in may.items() if has_it))


def parameters_of(text: str | None) -> int | None:
    """From `7B`, `270M` or `8x7B`; None for anything else."""
    if text is None or not text or text[-1].upper() not in _SIZES:
        return None
    try:
        factors = [float(part) for part in text[:-1].lower().split("x")]
    except ValueError:
        return None
    number = math.prod(factors) * _SIZES[text[-1].upper()]
    return within(int(number), SIZE_MAX) if math.isfinite(number) else None
