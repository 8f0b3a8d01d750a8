"""Any OpenAI-compatible server. What nothing else is known of is fronted by this; the other adapters build on it.

llama.cpp's `/props` and `/slots` are used where they exist: others have copied them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, ClassVar, get_args

import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.node.backends.backend import BackendLoad, BackendModel, BackendUnreachable, BadBackendReply
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.protocol.link.node_report import Capability

DEFAULT_SLOTS = 4
BYTES_PER_PARAMETER = 2
KV_SHARE = 100_000
"""A token's keys and values take about a hundred-thousandth of the weights (8B at 16 bits: 131 kB of 16 GB)."""
SLOTS_MAX = 4096


class OpenAIModelMeta(msgspec.Struct, frozen=True):
    """llama.cpp's field `meta`."""

    n_ctx: int | None = None
    n_ctx_train: int | None = None
    n_params: int | None = None
    size: int | None = None
    ftype: str | None = None
    prefix_cache_tokens: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    """A field of ours: no server in use has it."""
    capabilities: list[str] | None = None
    """Likewise."""


class OpenAIModelEntry(msgspec.Struct, frozen=True):
    id: Annotated[str, Meta(min_length=1)]
    meta: OpenAIModelMeta | None = None
    max_model_len: int | None = None
    owned_by: str | None = None
    root: str | None = None
    parent: str | None = None


class OpenAIModelList(msgspec.Struct, frozen=True):
    data: Annotated[list[OpenAIModelEntry], Meta(max_length=MODELS_PER_NODE_MAX)]


class _Props(msgspec.Struct, frozen=True):
    total_slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] | None = None


class _Slot(msgspec.Struct, frozen=True):
    is_processing: bool = False
    n_ctx: int | None = None


class OpenAIBackend(BackendHttpClient):
    """Implements Backend."""

    kind: ClassVar[str] = "openai"
    aborts_on_disconnect = False  # llama.cpp does not, and nothing tells a server that does
    capabilities_to_probe: tuple[Capability, ...] = ("completions", "embeddings", "tools", "json_schema", "logprobs")

    _slots = DEFAULT_SLOTS

    async def models(self) -> list[BackendModel]:
        listed = await self.read("/v1/models", OpenAIModelList)
        is_loaded = await self._is_loaded()
        return [describe(model, is_loaded=is_loaded) for model in listed.data]

    async def load(self) -> BackendLoad | None:
        try:
            slots = await self.read("/slots", list[_Slot])
        except (BackendUnreachable, BadBackendReply):
            return None
        contexts = [slot.n_ctx for slot in slots if slot.n_ctx is not None and slot.n_ctx > 0]
        return BackendLoad(
            running=sum(slot.is_processing for slot in slots),
            slots=max(1, len(slots)),
            context_tokens=sum(contexts) if contexts else None,
        )

    async def slots(self) -> int:
        """How many requests it works on at once; a cautious guess for servers that do not say."""
        with suppress(BackendUnreachable, BadBackendReply):  # llama.cpp is silent while it loads: the last word stands
            self._slots = (await self.read("/props", _Props)).total_slots or DEFAULT_SLOTS
        return self._slots

    async def _is_loaded(self) -> bool:
        """llama.cpp answers 503 on /health while it loads; servers without /health are taken to be ready."""
        return await self.status_of("/health") != 503


def describe(model: OpenAIModelEntry, *, is_loaded: bool) -> BackendModel:
    meta = model.meta or OpenAIModelMeta()
    weights_bytes = meta.size or (meta.n_params or 0) * BYTES_PER_PARAMETER
    return BackendModel(
        id=model.id,
        state="warm" if is_loaded else "loading",
        context_length=meta.n_ctx or model.max_model_len or meta.n_ctx_train,
        quantization=meta.ftype,
        weights_bytes=weights_bytes,
        kv_bytes_per_token=weights_bytes // KV_SHARE,
        parameters=meta.n_params,
        prefix_cache_tokens=meta.prefix_cache_tokens,
        capabilities=_capabilities(meta),
        capabilities_complete=meta.capabilities is not None,
    )


def _capabilities(meta: OpenAIModelMeta) -> tuple[Capability, ...] | None:
    """As far as we know the words."""
    said = meta.capabilities
    return None if said is None else tuple(word for word in get_args(Capability) if word in said)
