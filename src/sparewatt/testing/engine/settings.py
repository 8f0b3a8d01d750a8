"""The engine's settings, injected faults, counters and errors."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from sparewatt.core.errors import BadRequest, ModelNotFound, SparewattError
from sparewatt.core.rng import Rng, seeded
from sparewatt.protocol.link.node_report import Capability
from sparewatt.sim.servers.facts import ServerKind

FAULTS_MAX = 64
"""Faults that may be pending."""

FaultKind = Literal[
    "status", "drop_before_head", "drop_after_tokens", "stall_after_tokens", "garbage", "error_event", "exit"
]
_RANDOM_KINDS: tuple[FaultKind, ...] = ("status", "drop_before_head", "drop_after_tokens", "error_event")
_RANDOM_TOKENS_MAX = 20


EngineKind = Literal["simple", "slots", "batching"]
EngineDialect = Literal["sparewatt"] | ServerKind
DIALECTS: tuple[EngineDialect, ...] = ("sparewatt", *get_args(ServerKind))


CAPABILITIES: tuple[Capability, ...] = tuple(each for each in get_args(Capability) if each != "tools_generic")
"""All that a server can have by itself."""


class EngineContextTooLong(BadRequest):
    code = "context_length_exceeded"

    def __init__(self, *, prompt_tokens: int, n_ctx: int, max_tokens: int = 0, param: str) -> None:
        """`max_tokens`: what the request wants to be written, where the server refuses it for the sum."""
        super().__init__(
            f"The prompt has {prompt_tokens} tokens, but the context of this model holds {n_ctx}.", param=param
        )
        self.prompt_tokens = prompt_tokens
        self.n_ctx = n_ctx
        self.max_tokens = max_tokens


class EngineModelNotFound(ModelNotFound):
    def __init__(self, model: str, *, served: tuple[str, ...]) -> None:
        super().__init__(model, nearest=served[:3])
        self.model = model


class TooManyFaults(BadRequest):
    code = "too_many_faults"


class ModelStillLoading(SparewattError):
    code = "model_loading"
    status = 503
    kind = "unavailable_error"
    retryable = True


class EngineQueueFull(SparewattError):
    code = "queue_full"
    status = 503
    retryable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """A rate of 0 means as fast as possible; `answer_tokens` fixes every answer's natural length.

    `simple` gives each stream the rates `prefill_tps` and `decode_tps`; the other kinds batch all of them together, and
    an iteration takes as long as the figures from `step_s` on say.
    """

    models: tuple[str, ...] = ("deterministic",)
    answer_tokens: int | None = None
    prefill_tps: float = 0.0
    decode_tps: float = 0.0
    slots: int = 8
    load_s: float = 0.0
    cold: bool = False
    n_ctx: int = 8192
    n_params: int = 1_000_000_000
    n_embd: int = 64
    prefix_cache_tokens: int = 0
    capabilities: tuple[Capability, ...] = CAPABILITIES
    """Only what the engine advertises; it serves all of them anyway."""
    fail_rate: float = 0.0
    seed: int = 0
    engine_kind: EngineKind = "simple"
    speaks: EngineDialect = "sparewatt"
    metrics: bool = True
    """Whether it has a `/metrics` page, where a server may have none."""
    quantization: str | None = None
    weights: int = 0
    """Other weights write other answers, whatever the model is called."""
    max_num_seqs: int = 256
    chunk_tokens: int = 2048
    kv_tokens: int = 65_536
    separate_prefill: bool = False
    step_s: float = 0.01
    step_per_job_s: float = 0.0
    step_per_token_s: float = 0.0
    prefill_fixed_s: float = 0.0
    prefill_token_s: float = 0.0001
    prefill_square_s: float = 0.0

    @property
    def weights_bytes(self) -> int:
        """Half a byte for each parameter."""
        return self.n_params // 2


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong, after how many tokens, and for how many requests (None: until cleared)."""

    kind: FaultKind
    after_tokens: Annotated[int, Meta(ge=0)] = 0
    status: Annotated[int, Meta(ge=400, le=599)] = 503
    count: Annotated[int, Meta(ge=1)] | None = 1


@dataclass(slots=True)
class EngineStats:
    """`started` is always `running + finished + cancelled`; `tokens` counts what was generated."""

    running: int = 0
    queued: int = 0
    started: int = 0
    finished: int = 0
    cancelled: int = 0
    tokens: int = 0


class FaultQueue:
    """Pending faults, first in first out. If none is pending, requests fail at random at `fail_rate`."""

    def __init__(self, *, fail_rate: float, seed: int) -> None:
        self._fail_rate = fail_rate
        self._rng: Rng = seeded(seed)
        self._pending: deque[tuple[Fault, int | None]] = deque()

    def add(self, fault: Fault) -> None:
        if len(self._pending) >= FAULTS_MAX:
            raise TooManyFaults(f"At most {FAULTS_MAX} faults can be pending. Clear them with DELETE /engine/faults.")
        self._pending.append((fault, fault.count))

    def clear(self) -> None:
        self._pending.clear()

    def pending(self) -> list[Fault]:
        return [Fault(fault.kind, fault.after_tokens, fault.status, left) for fault, left in self._pending]

    def take(self) -> Fault | None:
        """The fault for the next request."""
        if not self._pending:
            return self._random_fault()
        fault, left = self._pending[0]
        if left is not None:
            self._pending.popleft()
            if left > 1:
                self._pending.appendleft((fault, left - 1))
        return fault

    def _random_fault(self) -> Fault | None:
        if self._fail_rate <= 0 or self._rng.random() >= self._fail_rate:
            return None
        kind = _RANDOM_KINDS[int(self._rng.random() * len(_RANDOM_KINDS))]
        return Fault(kind, after_tokens=int(self._rng.random() * _RANDOM_TOKENS_MAX))
