"""A thousand unequal nodes that all have the model: cards, speeds and prices by the tables of the simulator."""

from __future__ import annotations

from msgspec import structs

from sparewatt import __version__
from sparewatt.core.money import NANO_PER_USD
from sparewatt.protocol.link.node_report import ModelReport, NodeSpecs
from sparewatt.sim.fleet.measuring import measured_speed
from sparewatt.sim.scenario import (
    GB,
    Scenario,
    SimModel,
    Site,
    make_scenario,
    nominal_decode_tps,
    nominal_prefill_tps,
)

MODEL = "m"
SERVED = "8b-int4"
"""The simulated model of that name, which fits on every card of the table."""
SHARED, SHARED_NODES = "m-shared", 16
"""A second model on a few large nodes only, so that each runs many streams of it."""
SEED = 1
CONTEXT_TOKENS = 4_096
"""Context assumed for one slot."""
WINDOW_TOKENS = 131_072
SLOTS_MAX = 64
SECONDS_PER_HOUR = 3600


def fleet(count: int) -> list[NodeSpecs]:
    """The same at every call."""
    scenario = make_scenario(count, seed=SEED)
    served = next(model for model in scenario.models if model.name == SERVED)
    specs = [_specs(scenario, site, served) for site in scenario.sites]
    large = sorted(range(len(specs)), key=lambda at: -specs[at].slots)[:SHARED_NODES]
    for at in large:
        shared = structs.replace(specs[at].models[0], id=SHARED)
        specs[at] = structs.replace(specs[at], models=(*specs[at].models, shared))
    return specs


def _specs(scenario: Scenario, site: Site, model: SimModel) -> NodeSpecs:
    gpu = site.gpu
    return NodeSpecs(
        name=f"node-{site.number:04d}",
        region=scenario.regions[site.region],
        gpu=gpu.name,
        gpu_count=1,
        vram_bytes=int(gpu.vram_gb * GB),
        tflops=gpu.tflops,
        tflops_measured=gpu.tflops * site.speed,
        bandwidth_bytes_s=site.bandwidth,
        hourly_price_nano=int(site.usd_per_hour * NANO_PER_USD),
        slots=_slots(site, model),
        backend="bench",
        agent_version=__version__,
        models=(_report(site, model),),
    )


def _slots(site: Site, model: SimModel) -> int:
    return max(1, min(SLOTS_MAX, _cache_tokens(site, model) // CONTEXT_TOKENS))


def _cache_tokens(site: Site, model: SimModel) -> int:
    return int((site.usable_bytes - model.weights_bytes) / model.kv_bytes_per_token)


def _report(site: Site, model: SimModel) -> ModelReport:
    second_nano = site.usd_per_hour * NANO_PER_USD / SECONDS_PER_HOUR
    reads, writes = nominal_prefill_tps(site, model), nominal_decode_tps(site, model)
    return ModelReport(
        id=MODEL,
        state="warm",
        weights_bytes=int(model.weights_bytes),
        kv_bytes_per_token=int(model.kv_bytes_per_token),
        prompt_price_nano=int(1e6 * second_nano / reads),
        completion_price_nano=int(1e6 * second_nano / writes),
        context_length=WINDOW_TOKENS,
        quantization="int4",
        measured=measured_speed(site, model),
        prefix_cache_tokens=_cache_tokens(site, model),
        capabilities=("chat", "continue_prefill"),
    )
