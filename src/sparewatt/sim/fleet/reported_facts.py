"""What the agent of a simulated machine finds out about its model server: by the pages that such a server has, read by
the node's real adapters, with the same gaps. vLLM tells no weights, Ollama no slots.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, get_args

from sparewatt.node.facts.owner_facts import OwnerFacts
from sparewatt.node.facts.server_facts import ServerAnswers, resolve_facts
from sparewatt.node.hardware.gpu import Hardware
from sparewatt.sim.scenario import GB, SimGpu, SimModel, Site
from sparewatt.sim.servers.adapter import answer_now, paged_adapter
from sparewatt.sim.servers.facts import ModelShape, ServerKind, ServerLoad, ServerTruth
from sparewatt.sim.servers.pages import server_pages

CONTEXT_TOKENS = 131_072
SLOT_CONTEXT_TOKENS = 32_768
"""Of a slotted server: what its owner gave each slot."""
KV_HEADS, HEAD_DIM = 8, 128
BITS_16 = 2
_KV_TOKENS = 1_000_000
"""Any number: what is looked for is whether the server tells it."""
_SIZE = re.compile(r"-(\d+)$")


class ReportedFacts(NamedTuple):
    """What is believed of one model on one kind of server and card."""

    slots: int
    weights_bytes: int
    kv_bytes_per_token: int
    bandwidth_bytes_s: float | None
    context_length: int | None
    knows_kv_tokens: bool
    caches_prefixes: bool


def reported_facts(site: Site, model: SimModel) -> ReportedFacts:
    return _facts(site.server, site.slots, site.gpu, model)


@lru_cache(maxsize=4096)
def _facts(server: str, slots: int, gpu: SimGpu, model: SimModel) -> ReportedFacts:
    kind: ServerKind = next(known for known in get_args(ServerKind) if known == server)
    truth = _truth(kind, slots, model)
    pages = server_pages(truth, ServerLoad())
    adapter = paged_adapter(kind, lambda: pages)
    answers = ServerAnswers(kind, answer_now(adapter.models()), answer_now(adapter.slots()), answer_now(adapter.load()))
    hardware = Hardware(driver_name(gpu), 1, int(gpu.vram_gb * GB), gpu.tflops)
    facts, models = resolve_facts(answers, owner=OwnerFacts(), hardware=hardware)
    found = models[0]
    return ReportedFacts(
        slots=facts.slots.value,
        weights_bytes=found.weights_bytes,
        kv_bytes_per_token=found.kv_bytes_per_token,
        bandwidth_bytes_s=facts.bandwidth_bytes_s.value if facts.bandwidth_bytes_s else None,
        context_length=found.context_length,
        knows_kv_tokens=facts.kv_tokens is not None,
        caches_prefixes=found.prefix_cache_tokens > 0,
    )


def _truth(kind: ServerKind, slots: int, model: SimModel) -> ServerTruth:
    layers = max(1, round(model.kv_bytes_per_token / (2 * BITS_16 * KV_HEADS * HEAD_DIM)))
    return ServerTruth(
        kind=kind,
        model=model.served_as or model.name,
        context_length=SLOT_CONTEXT_TOKENS if kind in ("llama.cpp", "ollama") else CONTEXT_TOKENS,
        slots=slots,
        kv_tokens=_KV_TOKENS,
        weights_bytes=int(model.weights_bytes),
        kv_bytes_per_token=int(model.kv_bytes_per_token),
        parameters=int(model.total_params),
        shape=ModelShape(layers=layers, kv_heads=KV_HEADS, heads=32, embedding=32 * HEAD_DIM),
    )


def driver_name(gpu: SimGpu) -> str:
    """`A100-40` in the table is `A100 40GB` to its driver, `RTX4060Ti` is `RTX4060 Ti`."""
    return _SIZE.sub(r" \1GB", gpu.name).replace("Ti", " Ti")
