"""The truth about one model server and its load; the pages show as much of it as the real program would."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ServerKind = Literal["vllm", "sglang", "llama.cpp", "ollama"]

BLOCK_TOKENS = 16
"""vLLM's KV cache is handed out in blocks of this many tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A transformer's dimensions, with Llama 3.1 8B as the default."""

    architecture: str = "llama"
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    embedding: int = 4096
    vocabulary: int = 128_256
    context_length: int = 131_072
    """That the model was trained for."""

    @property
    def kv_bytes_per_token(self) -> int:
        """With 16 bits per value: a key and a value of each KV head in each layer."""
        return 2 * 2 * self.layers * self.kv_heads * (self.embedding // self.heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTruth:
    """What does not change while the server runs."""

    kind: ServerKind
    model: str
    context_length: int
    """The longest that one request may get, as the server was started."""
    slots: int
    """Requests at once: `max_num_seqs`, `max_running_requests`, `--parallel` or `OLLAMA_NUM_PARALLEL`."""
    kv_tokens: int
    """Tokens in the KV cache, all requests together."""
    weights_bytes: int
    kv_bytes_per_token: int
    parameters: int
    quantization: str | None = None
    prefix_cache: bool = True
    chunk_tokens: int = 2048
    has_metrics: bool = True
    """SGLang and llama.cpp have a metrics page only if they were started with a flag."""
    tools: bool = False
    started_at: int = 0
    """Unix seconds."""
    shape: ModelShape = ModelShape()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLoad:
    """One request in a slot of llama.cpp."""

    prompt_tokens: int
    read_tokens: int
    cached_tokens: int
    written_tokens: int


@dataclass(slots=True, kw_only=True)
class ServerTotals:
    """Sums since the server started."""

    prompt_tokens: int = 0
    """Read, without those from the prefix cache."""
    cached_tokens: int = 0
    generation_tokens: int = 0
    first_token_s: float = 0.0
    first_tokens: int = 0
    request_s: float = 0.0
    requests: int = 0
    preemptions: int = 0
    iterations: int = 0
    busy_slots: int = 0
    """Summed over the iterations."""
    prompt_s: float = 0.0
    """Time from a slot to the first token, as llama.cpp counts it."""
    decode_s: float = 0.0
    longest_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """What changes from request to request."""

    running: int = 0
    waiting: int = 0
    kv_used_share: float = 0.0
    """Of the KV cache, by running requests."""
    slots: tuple[SlotLoad | None, ...] = ()
    """By slot number, None if it is free; without them the first `running` slots are shown as busy."""
    totals: ServerTotals = field(default_factory=ServerTotals)
