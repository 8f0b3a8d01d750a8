"""What a model server can do, as the matcher needs it: each figure from the best source that there is. Pure.

In this order: the owner, the server's own answers, the family table, the model's name, the server's counts of running
and waiting requests, and what this kind of server does by default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sparewatt.node.backends.backend import BackendLoad, BackendModel
from sparewatt.node.facts.family_table import Architecture
from sparewatt.node.facts.figure import Figure, first_known
from sparewatt.node.facts.model_family import (
    BITS_DEFAULT,
    WeightFormat,
    architecture_of,
    parameters_of,
    weight_format_of,
)
from sparewatt.node.facts.owner_facts import OwnerFacts
from sparewatt.node.hardware.gpu import Hardware
from sparewatt.policy.gpu_figures import memory_bandwidth_of

_T = TypeVar("_T")
SLOTS_MAX = 4096
KV_TOKENS_MAX = 1 << 40
WEIGHTS_BYTES_MAX = 1 << 50
KV_BYTES_MAX = 1 << 30
"""The bounds of a node's report."""
KV_SHARE = 100_000
"""A token's keys and values take about a hundred-thousandth of the weights at 16 bits (8B: 131 kB of 16 GB)."""
KV_BYTES_DEFAULT = 128 << 10
"""Of a model about which nothing is known: that of Llama 3 8B, the most frequent shape."""
PARAMETERS_TOLERANCE = 0.25
"""Between the family table and the server, which may count embeddings or a vision encoder in another way."""
SLOTS_DEFAULT = 4
"""Of llama.cpp, and assumed of a server of an unknown kind."""
VLLM_SLOTS, VLLM_LARGE_SLOTS, VLLM_CPU_SLOTS = 256, 1024, 128
"""vLLM's `max_num_seqs` if its owner sets none (0.8.5 to 0.27): by the memory of its card, and without one."""
VLLM_LARGE_BYTES = 70 << 30
"""From this much memory on a card is large to vLLM, unless it is an A100."""
SGLANG_SLOTS_MIN, SGLANG_SLOTS_PER_CONTEXT = 2048, 512
"""SGLang's default (0.5.9): 512 for each whole context that fits into its cache, from 2,048 to 4,096."""
SLOT_SERVERS = frozenset({"llama.cpp", "ollama", "lm-studio"})
"""Their slots have a context each; the others share one KV cache among all requests."""
CHUNKS_PREFILL = frozenset({"vllm", "sglang", "llama.cpp", "ollama"})
"""They read a prompt in chunks between the decoding steps of other answers, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    id: str
    context: Figure[int] | None
    quantization: Figure[str] | None
    weights_bytes: Figure[int] | None
    kv_bytes_per_token: Figure[int]
    prefix_cache_tokens: Figure[int]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    kind: str
    slots: Figure[int]
    """Answers that it writes at once."""
    kv_tokens: Figure[int] | None = None
    """What its KV cache holds, all requests together."""
    chunked_prefill: Figure[bool] | None = None
    bandwidth_bytes_s: Figure[float] | None = None
    """Of the memory that holds the weights: of all cards that share them."""
    models: tuple[ModelFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """What an adapter found out."""

    kind: str
    models: Sequence[BackendModel]
    slots: int | None = None
    load: BackendLoad | None = None


def resolve_facts(
    answers: ServerAnswers,
    *,
    owner: OwnerFacts,
    hardware: Hardware,
    learned_slots: int | None = None,
    copy_bytes_s: float | None = None,
) -> tuple[ServerFacts, list[BackendModel]]:
    """The facts, and the models with every figure filled in. `copy_bytes_s` was measured on the first card."""
    kv_tokens = _reported_kv_tokens(answers, owner)
    slots = _slots(answers, owner, hardware, kv_tokens=kv_tokens.value if kv_tokens else None, learned=learned_slots)
    resolved = [_resolve_model(model, owner) for model in answers.models]
    models = [model for _, model in resolved]
    kv_tokens = kv_tokens or _slots_kv_tokens(answers.kind, slots, [facts for facts, _ in resolved])
    return ServerFacts(
        kind=answers.kind,
        slots=slots,
        kv_tokens=kv_tokens,
        chunked_prefill=_chunked_prefill(answers),
        bandwidth_bytes_s=_bandwidth(hardware, copy_bytes_s, cards=_cards_in_use(hardware, models, kv_tokens)),
        models=tuple(facts for facts, _ in resolved),
    ), models


def kv_capacity_bytes(facts: ServerFacts, *, bytes_max: int) -> int | None:
    """Size of the KV cache; None if its models differ in what a token takes, or the tokens are unknown."""
    rates = {model.kv_bytes_per_token.value for model in facts.models}
    if facts.kv_tokens is None or len(rates) != 1:
        return None
    return min(bytes_max, facts.kv_tokens.value * rates.pop())


# the server


def _slots(
    answers: ServerAnswers, owner: OwnerFacts, hardware: Hardware, *, kv_tokens: int | None, learned: int | None
) -> Figure[int]:
    """A server that reports its slots is not second-guessed."""
    default = _default_slots(answers, hardware, kv_tokens)
    found = first_known(
        ("owner", owner.slots), ("server", answers.slots), ("learned", learned), ("default", default)
    ) or Figure(SLOTS_DEFAULT, "default")
    return replace(found, value=max(1, min(SLOTS_MAX, found.value)))


def _default_slots(answers: ServerAnswers, hardware: Hardware, kv_tokens: int | None) -> int:
    engines = answers.load.engines if answers.load is not None else 1
    match answers.kind:
        case "vllm":
            return _vllm_slots(hardware) * engines
        case "sglang":
            context = max((model.context_length or 0 for model in answers.models), default=0)
            return _sglang_slots(kv_tokens, context)
        case "ollama" | "lm-studio":
            return 1
    return SLOTS_DEFAULT


def _vllm_slots(hardware: Hardware) -> int:
    """By the card that vLLM sees first."""
    if not hardware.gpu_count:
        return VLLM_CPU_SLOTS
    is_large = _card_bytes(hardware) >= VLLM_LARGE_BYTES and "a100" not in hardware.gpu.lower()
    return VLLM_LARGE_SLOTS if is_large else VLLM_SLOTS


def _sglang_slots(kv_tokens: int | None, context: int) -> int:
    if kv_tokens is None:
        return SGLANG_SLOTS_MIN
    whole_contexts = SGLANG_SLOTS_PER_CONTEXT * kv_tokens // max(1, context)
    return max(1, min(max(SGLANG_SLOTS_MIN, whole_contexts), kv_tokens // 2))


def _reported_kv_tokens(answers: ServerAnswers, owner: OwnerFacts) -> Figure[int] | None:
    reported = answers.load.context_tokens if answers.load is not None else None
    found = first_known(("owner", owner.kv_tokens), ("server", reported))
    return replace(found, value=max(1, min(KV_TOKENS_MAX, found.value))) if found is not None else None


def _slots_kv_tokens(kind: str, slots: Figure[int], models: Sequence[ModelFacts]) -> Figure[int] | None:
    """Of a server whose slots have a context each; with several models there is one such cache for each."""
    contexts = [model.context for model in models]
    if kind not in SLOT_SERVERS or len(contexts) != 1 or contexts[0] is None:
        return None
    return Figure(min(KV_TOKENS_MAX, slots.value * contexts[0].value), slots.source)


def _chunked_prefill(answers: ServerAnswers) -> Figure[bool] | None:
    if answers.load is not None and answers.load.chunks_prefill is not None:
        return Figure(answers.load.chunks_prefill, "server")
    return Figure(True, "default") if answers.kind in CHUNKS_PREFILL else None


# the memory


def _card_bytes(hardware: Hardware) -> int:
    return hardware.vram_bytes // max(1, hardware.gpu_count)


def _cards_in_use(hardware: Hardware, models: Sequence[BackendModel], kv_tokens: Figure[int] | None) -> int:
    """How many cards one model is spread over, by the memory that its weights and its KV cache take."""
    if len(models) != 1 or hardware.gpu_count <= 1:
        return 1
    kv_bytes = kv_tokens.value * models[0].kv_bytes_per_token if kv_tokens is not None else 0
    cards = math.ceil((models[0].weights_bytes + kv_bytes) / max(1, _card_bytes(hardware)))
    return max(1, min(hardware.gpu_count, cards))


def _bandwidth(hardware: Hardware, copy_bytes_s: float | None, *, cards: int) -> Figure[float] | None:
    found = first_known(("measured", copy_bytes_s), ("card table", memory_bandwidth_of(hardware.gpu)))
    return replace(found, value=min(1e15, found.value * cards)) if found is not None else None


# a model


@dataclass(frozen=True, slots=True)
class _NameFacts:
    """What the names of a model say."""

    architecture: Architecture | None
    parameters: int | None
    weight_format: WeightFormat | None


def _resolve_model(model: BackendModel, owner: OwnerFacts) -> tuple[ModelFacts, BackendModel]:
    named = _read_names(model)
    architecture, by_name = named.architecture, named.weight_format
    weights, kv_bytes = _model_bytes(model, owner, named)
    facts = ModelFacts(
        id=model.id,
        context=first_known(("owner", owner.context), ("server", model.context_length)),
        quantization=first_known(
            ("server", model.quantization), ("model name", by_name.quantization if by_name else None)
        ),
        weights_bytes=weights,
        kv_bytes_per_token=kv_bytes,
        prefix_cache_tokens=_prefix_cache(model, owner),
    )
    return facts, replace(
        model,
        context_length=facts.context.value if facts.context else None,
        quantization=facts.quantization.value if facts.quantization else None,
        weights_bytes=weights.value if weights else 0,
        kv_bytes_per_token=kv_bytes.value,
        prefix_cache_tokens=facts.prefix_cache_tokens.value,
        parameters=model.parameters or named.parameters,
        active_parameters=architecture.active_parameters if architecture else None,
    )


def _read_names(model: BackendModel) -> _NameFacts:
    """What the server calls the weights says more than what it calls the model, which may be any alias."""
    names = [name for name in (model.weights_name, model.id) if name]
    architecture = _first(_architecture(name, model) for name in names)
    parameters = architecture.parameters if architecture else _first(parameters_of(name) for name in names)
    return _NameFacts(architecture, parameters, _first(weight_format_of(name) for name in names))


def _first(found: Iterable[_T | None]) -> _T | None:
    return next((each for each in found if each is not None), None)


def _architecture(name: str, model: BackendModel) -> Architecture | None:
    """By the name, unless the server reports another number of parameters: an alias may say anything."""
    found = architecture_of(name)
    if found is None or model.parameters is None:
        return found
    return found if abs(found.parameters / model.parameters - 1) <= PARAMETERS_TOLERANCE else None


def _model_bytes(model: BackendModel, owner: OwnerFacts, named: _NameFacts) -> tuple[Figure[int] | None, Figure[int]]:
    """Of its weights, and of one token in the KV cache, which is never zero."""
    architecture = named.architecture
    told = (weight_format_of(model.quantization) if model.quantization else None) or named.weight_format
    bits = told.bits if told else architecture.bits if architecture else BITS_DEFAULT
    weights = first_known(
        ("owner", owner.weights_bytes),
        ("server", model.weights_bytes),
        ("server", _weights_bytes(model.parameters, bits)),
        ("family table" if architecture else "model name", _weights_bytes(named.parameters, bits)),
    )
    parameters = model.parameters or named.parameters or (weights.value * 8 / bits if weights else 0)
    kv_bytes = first_known(
        ("owner", owner.kv_bytes_per_token),
        ("server", model.kv_bytes_per_token),
        ("family table", architecture.kv_bytes(model.kv_bits) if architecture else None),
        ("share of weights", round(2 * parameters / KV_SHARE * model.kv_bits / 16)),
    ) or Figure(KV_BYTES_DEFAULT * model.kv_bits // 16, "default")
    return (
        replace(weights, value=min(WEIGHTS_BYTES_MAX, weights.value)) if weights else None,
        replace(kv_bytes, value=min(KV_BYTES_MAX, kv_bytes.value)),
    )


def _weights_bytes(parameters: int | None, bits: float) -> int | None:
    return round(parameters * bits / 8) if parameters else None


def _prefix_cache(model: BackendModel, owner: OwnerFacts) -> Figure[int]:
    if owner.prefix_cache_tokens is not None:
        return Figure(owner.prefix_cache_tokens, "owner")
    if model.prefix_cache_tokens:
        return Figure(min(KV_TOKENS_MAX, model.prefix_cache_tokens), "server")
    return Figure(0, "default")
