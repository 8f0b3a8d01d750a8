"""The adapter for any OpenAI-compatible server, also one of an unknown kind; the other adapters build on it.

llama.cpp's `/props` and `/slots` are used where they exist: other servers have copied them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, ClassVar, get_args

import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.prometheus_page import PrometheusPage
from sparewatt.protocol.link.node_report import Capability

SLOTS_MAX = 4096
CONTEXT_TOKENS_MAX = 1 << 26
SIZE_MAX = 1 << 50
"""The bounds of a node's report; a figure beyond them is not believed."""


class OpenAIModelMeta(msgspec.Struct, frozen=True):
    """The field `meta` of llama.cpp."""

    n_ctx: int | None = None
    n_ctx_train: int | None = None
    n_params: int | None = None
    size: int | None = None
    ftype: str | None = None
    prefix_cache_tokens: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    """This field and the next are Sparewatt's own; its deterministic engine has them."""
    capabilities: list[str] | None = None


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
    aborts_on_disconnect = False  # llama.cpp does not, and nothing distinguishes a server that does
    capabilities_to_probe: tuple[Capability, ...] = ("completions", "embeddings", "tools", "json_schema", "logprobs")
    _slots: int | None = None

    async def models(self) -> list[BackendModel]:
        listed = await self.read("/v1/models", OpenAIModelList)
        # llama.cpp answers 503 while it loads; a server without /health counts as ready.
        is_loaded = await self.status_of("/health") != 503
        return [_describe(model, is_loaded=is_loaded) for model in listed.data]

    async def load(self) -> BackendLoad | None:
        try:
            slots = await self.read("/slots", list[_Slot])
        except BackendError:
            return None
        contexts = [context for slot in slots[:SLOTS_MAX] if (context := within(slot.n_ctx, CONTEXT_TOKENS_MAX))]
        return BackendLoad(
            running=sum(slot.is_processing for slot in slots),
            slots=min(SLOTS_MAX, len(slots)) or None,
            context_tokens=sum(contexts) if contexts else None,
        )

    async def slots(self) -> int | None:
        with suppress(BackendError):  # llama.cpp has no answer while it loads: the last one counts
            self._slots = (await self.read("/props", _Props)).total_slots
        return self._slots

    async def _metrics(self) -> PrometheusPage | None:
        try:
            return PrometheusPage(await self.fetch("/metrics"))
        except BackendError:
            return None


def _describe(model: OpenAIModelEntry, *, is_loaded: bool) -> BackendModel:
    meta = model.meta or OpenAIModelMeta()
    contexts = (meta.n_ctx, model.max_model_len, meta.n_ctx_train)
    return BackendModel(
        id=model.id,
        state="warm" if is_loaded else "loading",
        context_length=next((found for context in contexts if (found := within(context, CONTEXT_TOKENS_MAX))), None),
        quantization=meta.ftype,
        weights_bytes=within(meta.size, SIZE_MAX) or 0,
        kv_bytes_per_token=0,
        parameters=within(meta.n_params, SIZE_MAX),
        prefix_cache_tokens=meta.prefix_cache_tokens,
        capabilities=_capabilities(meta),
        capabilities_complete=meta.capabilities is not None,
        weights_name=model.root,
    )


def within(value: int | None, most: int) -> int | None:
    """A server's figure, if it is one: above zero, and not absurd."""
    return value if value is not None and 0 < value <= most else None


def _capabilities(meta: OpenAIModelMeta) -> tuple[Capability, ...] | None:
    """Those that this version knows."""
    listed = meta.capabilities
    return None if listed is None else tuple(each for each in get_args(Capability) if each in listed)


async def is_owned_by(server: BackendHttpClient, owner: str) -> bool:
    """Whether it lists a model whose `owned_by` is this."""
    try:
        listed = await server.read("/v1/models", OpenAIModelList)
    except BackendError:
        return False
    return any(model.owned_by == owner for model in listed.data)
