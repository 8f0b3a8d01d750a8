"""Ollama. `/api/tags` is what lies on the disk, `/api/ps` what is loaded, `/api/show` what each model can do.

It does not tell how many requests it works on, so only our own are known.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel, BadBackendReply
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import KV_SHARE, OpenAIBackend
from sparewatt.protocol.link.node_report import Capability

SLOTS = 1
"""What newer versions work on at once unless OLLAMA_NUM_PARALLEL says more, which nobody tells us."""
CONTEXT_TOKENS = 4096
"""What it loads a model with unless model or owner say otherwise."""
KV_BYTES = 2
"""It keeps keys and values at 16 bits."""
_BLOB = re.compile(r"^FROM\s+\S*sha256[-:]([0-9a-f]{64})\s*$", re.MULTILINE)
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)
_MEANS: dict[str, tuple[Capability, ...]] = {
    "completion": ("chat", "completions", "json_schema"),
    "tools": ("tools",),
    "vision": ("vision",),
    "embedding": ("embeddings",),
}


class _Details(msgspec.Struct, frozen=True):
    quantization_level: str | None = None


class _Tag(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1)]
    size: Annotated[int, Meta(ge=0, le=1 << 50)] = 0
    digest: str = ""
    details: _Details = _Details()
    context_length: Annotated[int, Meta(ge=0, le=1 << 26)] | None = None


class _Tags(msgspec.Struct, frozen=True):
    models: Annotated[list[_Tag], Meta(max_length=MODELS_PER_NODE_MAX)]


class _Version(msgspec.Struct, frozen=True):
    version: str


class _ModelDetails(msgspec.Struct, frozen=True):
    modelfile: str = ""
    parameters: str | None = None
    model_info: dict[str, Any] = {}
    capabilities: Annotated[list[str], Meta(max_length=64)] | None = None


class OllamaBackend(OpenAIBackend):
    kind: ClassVar[str] = "ollama"
    capabilities_to_probe = ("logprobs",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._details: dict[str, _ModelDetails] = {}
        """By digest: what a model is does not change under the same one."""

    @staticmethod
    async def recognises(server: BackendHttpClient) -> bool:
        try:
            await server.read("/api/version", _Version)
            await server.read("/api/tags", _Tags)
        except BackendError:
            return False
        return True

    async def models(self) -> list[BackendModel]:
        on_disk = (await self.read("/api/tags", _Tags)).models
        loaded = {tag.name: tag for tag in (await self.read("/api/ps", _Tags)).models}
        self._details = {tag.digest: self._details[tag.digest] for tag in on_disk if tag.digest in self._details}
        return [_describe(tag, loaded.get(tag.name), await self._show(tag)) for tag in on_disk]

    async def load(self) -> BackendLoad | None:
        return None

    async def slots(self) -> int:
        return SLOTS

    async def _show(self, tag: _Tag) -> _ModelDetails:
        """One model that cannot be shown is still listed, with less told of it."""
        if tag.digest not in self._details:
            try:
                shown = await self.read("/api/show", _ModelDetails, body={"model": tag.name})
            except BadBackendReply:
                return _ModelDetails()
            self._details[tag.digest] = shown
        return self._details[tag.digest]


def _describe(tag: _Tag, loaded: _Tag | None, shown: _ModelDetails) -> BackendModel:
    facts = shown.model_info
    architecture = facts.get("general.architecture")
    longest = _whole(facts.get(f"{architecture}.context_length"))
    weights = _BLOB.search(shown.modelfile)
    return BackendModel(
        id=tag.name,
        state="warm" if loaded is not None else "on_disk",
        context_length=_context(loaded, shown.parameters or "", longest),
        quantization=tag.details.quantization_level or None,
        weights_bytes=tag.size,
        kv_bytes_per_token=_kv_bytes(facts, architecture) or tag.size // KV_SHARE,
        parameters=_whole(facts.get("general.parameter_count")),
        capabilities=_capabilities(shown.capabilities),
        weights_digest=f"sha256:{weights[1]}" if weights else None,
    )


def _context(loaded: _Tag | None, parameters: str, longest: int | None) -> int | None:
    """As it is loaded; else as it would be."""
    if loaded is not None and loaded.context_length:
        return loaded.context_length
    chosen = _NUM_CTX.search(parameters)
    wanted = int(chosen[1]) if chosen and int(chosen[1]) else CONTEXT_TOKENS
    return min(wanted, longest) if longest else wanted


def _kv_bytes(facts: dict[str, Any], architecture: object) -> int | None:
    """Keys and values of one token, by the shape of the model, where that is told in single numbers."""
    names = ("block_count", "attention.head_count_kv", "embedding_length", "attention.head_count")
    layers, kv_heads, width, heads = (_whole(facts.get(f"{architecture}.{name}")) for name in names)
    if not (layers and kv_heads and width and heads):
        return None
    return 2 * KV_BYTES * layers * kv_heads * (width // heads)


def _capabilities(told: list[str] | None) -> tuple[Capability, ...] | None:
    """Older versions do not tell."""
    if told is None:
        return None
    return tuple(dict.fromkeys(each for word in told for each in _MEANS.get(word, ())))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 50 else None
