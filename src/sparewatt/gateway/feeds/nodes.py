"""GET /v1/nodes: every node, with what it claims and what was measured side by side."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparewatt.core.errors import NotFound
from sparewatt.core.ids import NodeId
from sparewatt.core.money import format_usd
from sparewatt.gateway.http import authenticate, json_reply, listing
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.matcher.health import state_of
from sparewatt.inference.matcher.model import NodeRow
from sparewatt.protocol.node import ModelReport, Speed


async def list_nodes(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    await authenticate(request, "inference")
    rows = sorted(services.table, key=lambda row: (not row.connected, row.specs.name, row.id))
    return json_reply(listing([describe_node(row, services) for row in rows]))


async def show_node(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    await authenticate(request, "inference")
    wanted = request.match_info["node_id"]
    row = services.table.get(NodeId(wanted.lower()))
    if row is None:
        raise NotFound(f"There is no node {wanted[:60]!r}. 'sparewatt nodes' shows them.")
    return json_reply(describe_node(row, services))


def describe_node(row: NodeRow, services: Services) -> dict[str, Any]:
    specs = row.specs
    return {
        "id": row.id,
        "name": specs.name,
        "region": specs.region,
        "state": state_of(row, now_s=services.clock.now_s(), rules=services.health).value,
        "gpu": specs.gpu,
        "gpu_count": specs.gpu_count,
        "agent_version": specs.agent_version,
        "backend": specs.backend,
        "claimed": {
            "vram_bytes": specs.vram_bytes,
            "tflops": specs.tflops,
            "hourly_usd": format_usd(specs.hourly_price_nano),
        },
        "measured": {"tflops": specs.tflops_measured},
        "models": [_describe_model(model) for model in specs.models],
        "running": row.load.running,
        "queued": row.load.queued,
        "slots": specs.slots,
        "rtt_ms": round(row.rtt_s * 1000, 3),
        "in_flight": row.own_jobs,
        "jobs_done": row.jobs_done,
        "jobs_failed": row.jobs_failed,
        "last_seen_at": services.clock.unix_s() if row.connected else row.last_seen_unix_s,
    }


def _describe_model(model: ModelReport) -> dict[str, Any]:
    return {
        "id": model.id,
        "state": model.state,
        "context_length": model.context_length,
        "quantization": model.quantization,
        "claimed": _describe_speed(model.claimed),
        "measured": _describe_speed(model.measured),
        "price": {
            "prompt_usd_per_mtok": format_usd(model.prompt_price_nano),
            "completion_usd_per_mtok": format_usd(model.completion_price_nano),
        },
    }


def _describe_speed(speed: Speed | None) -> dict[str, float] | None:
    if speed is None:
        return None
    return {"ttft_s": speed.ttft_s, "prefill_tps": speed.prefill_tps, "decode_tps": speed.decode_tps}
