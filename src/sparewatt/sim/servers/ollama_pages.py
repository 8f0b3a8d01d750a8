"""The pages of Ollama 0.33 (api/types.go, server/routes.go, openai/openai.go).

It has no figure for how many requests it runs, may run or has waiting. The KV cache follows from the model's shape.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from sparewatt.sim.servers.facts import ServerLoad, ServerTruth

VERSION = "0.33.0"
KEEP_ALIVE_S = 300
"""Its default for how long an unused model stays loaded."""


def static_pages(facts: ServerTruth) -> dict[str, bytes]:
    tag = {
        "name": facts.model,
        "model": facts.model,
        "modified_at": _rfc3339(facts.started_at),
        "size": facts.weights_bytes,
        "digest": _digest("manifest", facts),
        "details": _details(facts),
        "capabilities": _capabilities(facts),
    }
    card = {"id": facts.model, "object": "model", "created": facts.started_at, "owned_by": "library"}
    return {
        "/": b"Ollama is running",
        "/api/version": msgspec.json.encode({"version": VERSION}),
        "/api/tags": msgspec.json.encode({"models": [tag]}),
        "/api/show": msgspec.json.encode(_show(facts)),
        "/v1/models": msgspec.json.encode({"object": "list", "data": [card]}),
    }


def _show(facts: ServerTruth) -> dict[str, object]:
    """The answer to a POST that names the model."""
    shape, name = facts.shape, facts.shape.architecture
    return {
        "modelfile": f"FROM /models/blobs/sha256-{_digest('weights', facts)}\n",
        "parameters": f"num_ctx                        {facts.context_length}",
        "template": "{{ .Prompt }}",
        "details": _details(facts),
        "model_info": {
            "general.architecture": name,
            "general.parameter_count": facts.parameters,
            f"{name}.attention.head_count": shape.heads,
            f"{name}.attention.head_count_kv": shape.kv_heads,
            f"{name}.block_count": shape.layers,
            f"{name}.context_length": shape.context_length,
            f"{name}.embedding_length": shape.embedding,
            f"{name}.vocab_size": shape.vocabulary,
        },
        "capabilities": _capabilities(facts),
        "modified_at": _rfc3339(facts.started_at),
    }


def live_pages(facts: ServerTruth, load: ServerLoad) -> dict[str, bytes]:  # noqa: ARG001 (it tells nothing of its load)
    size = facts.weights_bytes + facts.slots * facts.context_length * facts.kv_bytes_per_token
    loaded = {
        "name": facts.model,
        "model": facts.model,
        "size": size,
        "digest": _digest("manifest", facts),
        "details": _details(facts),
        "expires_at": _rfc3339(facts.started_at + KEEP_ALIVE_S),
        "size_vram": size,
        "context_length": facts.context_length,
    }
    return {"/api/ps": msgspec.json.encode({"models": [loaded]})}


def _details(facts: ServerTruth) -> dict[str, object]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": facts.shape.architecture,
        "families": [facts.shape.architecture],
        "parameter_size": parameter_size(facts.parameters),
        "quantization_level": facts.quantization or "F16",
    }


def _capabilities(facts: ServerTruth) -> list[str]:
    return ["completion", "tools"] if facts.tools else ["completion"]


def parameter_size(parameters: int) -> str:
    """`8B`, `8.2B`, `134.52M`: no digits after a whole number, one for billions, two for millions."""
    for size, letter, digits in ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0)):
        if parameters >= size:
            return f"{parameters / size:.{0 if parameters % size == 0 else digits}f}{letter}"
    return str(parameters)


def _digest(what: str, facts: ServerTruth) -> str:
    return sha256(f"{what} {facts.model} {facts.quantization}".encode()).hexdigest()


def _rfc3339(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat()
