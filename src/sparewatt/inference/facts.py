"""What the table knows of a node, as a policy sees it. One entry per model; a node without models has one all the same.

Uptime, compliance and tiers are not kept yet, and the reputation that is kept is not asked here yet: they stay unknown,
and what is unknown satisfies no bound.
"""

from __future__ import annotations

from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.policy.check import NodeFacts
from sparewatt.policy.field_types.sets import normalized_names
from sparewatt.policy.gpus import gpu_class_of, gpu_name
from sparewatt.policy.quantization import quantization_of
from sparewatt.policy.regions import place_of
from sparewatt.protocol.link.node_report import ModelReport

BYTES_PER_GB = 10**9
LOWEST_TIER = "community"
"""What every node is until somebody vouches for it."""


def facts_of(row: NodeRow) -> list[NodeFacts]:
    return [facts_with(row, model) for model in row.models.values()] or [facts_with(row, None)]


def facts_with(row: NodeRow, model: ModelReport | None) -> NodeFacts:
    specs, speed = row.specs, model.measured if model else None
    return NodeFacts(
        node_id=row.id,
        names=normalized_names((row.id, specs.name, *([row.owner] if row.owner else []))),
        place=place_of(specs.region),
        gpu=gpu_name(specs.gpu) or None,
        gpu_class=gpu_class_of(specs.gpu),
        vram_gb=specs.vram_bytes / BYTES_PER_GB,
        gpu_count=specs.gpu_count,
        tier=LOWEST_TIER,
        hourly_nano=specs.hourly_price_nano,
        model=model.id if model else None,
        quantization=quantization_of(model.quantization) if model else None,
        prompt_nano=model.prompt_price_nano if model else None,
        completion_nano=model.completion_price_nano if model else None,
        throughput_tps=speed.decode_tps if speed else None,
        ttft_ms=(speed.ttft_s + row.rtt_s) * 1000 if speed else None,
        warm=model is not None and model.state == "warm",
        capabilities=frozenset(model.capabilities) if model and model.capabilities is not None else None,
    )
