"""The adapter for Ollama. `/api/tags` has the models on disk, `/api/ps` those loaded, `/api/show` their capabilities.

It reports neither how many requests it runs, so only those of this node are known, nor how many it would run at once
(OLLAMA_NUM_PARALLEL).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.node.backends.backend import BackendLoad, BackendModel, BadBackendReply
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.protocol.link.node_report import Capability

CONTEXT_TOKENS = 4096
"""Its default context, unless the model or its owner sets another."""
KV_BYTES = 2
"""Its KV cache has 16 bits per value."""
KV_BYTES_MAX = 1 << 30
"""Of one token, in a node's report."""
_BLOB = re.compile(r"^FROM\s+\S*sha256[-:]([0-9a-f]{64})\s*$", re.MULTILINE)
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)
_CAPABILITIES: dict[str, tuple[Capability, ...]] = {
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
        """By digest: the same digest is the same model."""

    @staticmethod
    async def recognises(server: BackendHttpClient) -> bool:
        return await server.serves("/api/version", _Version) and await server.serves("/api/tags", _Tags)

    async def models(self) -> list[BackendModel]:
        on_disk = (await self.read("/api/tags", _Tags)).models
        loaded = {tag.name: tag for tag in (await self.read("/api/ps", _Tags)).models}
        self._details = {tag.digest: self._details[tag.digest] for tag in on_disk if tag.digest in self._details}
        return [_describe(tag, loaded.get(tag.name), await self._show(tag)) for tag in on_disk]

    async def load(self) -> BackendLoad | None:
        return None

    async def slots(self) -> int | None:
        return None

    async def _show(self, tag: _Tag) -> _ModelDetails:
        """A model that cannot be shown is still listed, with fewer facts."""
        if tag.digest not in self._details:
            try:
                self._details[tag.digest] = await self.read("/api/show", _ModelDetails, body={"model": tag.name})
            except BadBackendReply:
                return _ModelDetails()
        return self._details[tag.digest]


def _describe(tag: _Tag, loaded: _Tag | None, shown: _ModelDetails) -> BackendModel:
    facts = shown.model_info
    architecture = facts.get("general.architecture")
    longest = _positive(facts.get(f"{architecture}.context_length"))
    weights = _BLOB.search(shown.modelfile)
    return BackendModel(
        id=tag.name,
        state="warm" if loaded is not None else "on_disk",
        context_length=_context(loaded, shown.parameters or "", longest),
        quantization=tag.details.quantization_level or None,
        weights_bytes=tag.size,
        kv_bytes_per_token=_kv_bytes(facts, architecture) or 0,
        parameters=_positive(facts.get("general.parameter_count")),
        capabilities=_capabilities(shown.capabilities),
        weights_digest=f"sha256:{weights[1]}" if weights else None,
    )


def _context(loaded: _Tag | None, parameters: str, longest: int | None) -> int | None:
    """As it is loaded, else as it would be."""
    if loaded is not None and loaded.context_length:
        return loaded.context_length
    chosen = _NUM_CTX.search(parameters)
    wanted = int(chosen[1]) if chosen and int(chosen[1]) else CONTEXT_TOKENS
    return min(wanted, longest) if longest else wanted


def _kv_bytes(facts: dict[str, Any], architecture: object) -> int | None:
    """The KV cache of one token, by the shape of the model, where each figure is a single number.

    The length of a head is that of keys and of values, if it is not the width of the model divided by its heads.
    """
    names = ("block_count", "attention.head_count_kv", "embedding_length", "attention.head_count")
    layers, kv_heads, width, heads = (_positive(facts.get(f"{architecture}.{name}")) for name in names)
    if not (layers and kv_heads and width and heads):
        return None
    key, value = (_positive(facts.get(f"{architecture}.attention.{name}_length")) for name in ("key", "value"))
    kv_bytes = KV_BYTES * layers * kv_heads * ((key or width // heads) + (value or width // heads))
    return kv_bytes if kv_bytes <= KV_BYTES_MAX else None


def _capabilities(words: list[str] | None) -> tuple[Capability, ...] | None:
    """None from older versions, which do not report them."""
    if words is None:
        return None
    return tuple(dict.fromkeys(each for word in words for each in _CAPABILITIES.get(word, ())))


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 50 else None
