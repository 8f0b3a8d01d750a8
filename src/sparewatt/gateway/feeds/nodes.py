"""GET /v1/nodes: every node, with what it claims and what was measured side by side.

A query string in the words of a policy shows only the nodes it allows, in its order, and how many each word dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.core.errors import NotFound
from sparewatt.core.ids import NodeId
from sparewatt.core.money import format_usd
from sparewatt.gateway.feeds.public import handle_of, may_know_all
from sparewatt.gateway.http import authenticate, json_reply, listing
from sparewatt.gateway.services import Services, services_of
from sparewatt.gateway.siblings.questions import WORK, NodeWork, Nothing
from sparewatt.inference.facts import facts_of
from sparewatt.inference.matcher.model import NodeRow
from sparewatt.inference.metering.derivation import derivation_of, is_paid_by_the_hour
from sparewatt.policy.carriers import read_query
from sparewatt.policy.model import Policy
from sparewatt.policy.rank import sort_key
from sparewatt.policy.relax import Step, funnel, judge, relaxations
from sparewatt.policy.words import explain_relaxation, to_object
from sparewatt.protocol.node import GpuSpec, ModelReport, NodeSpecs, Sensors, Speed


async def list_nodes(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "inference")
    rows = sorted(services.table, key=lambda row: (not row.connected, row.specs.name, row.id))
    work = await all_work(services)
    if not request.query:
        return json_reply(listing([describe_for(row, who, services) | work_of(row, work) for row in rows]))
    return json_reply(_filtered(read_query(request.query.items()), rows, who, services, work))


def _filtered(policy: Policy, rows: list[NodeRow], who: Principal, services: Services, work: Work) -> dict[str, Any]:
    """The nodes that a policy allows, and why the others are not among them."""
    facts = {row.id: facts_of(row) for row in rows}
    left = [row for row in rows if judge(policy, facts[row.id]) is None]
    left.sort(key=lambda row: (not row.connected, *sort_key(policy, facts[row.id])))
    nodes = list(facts.values())
    present = [facts[row.id] for row in rows if row.connected]
    return listing([describe_for(row, who, services) | work_of(row, work) for row in left]) | {
        "policy": to_object(policy),
        "total": len(rows),
        "funnel": [_describe_step(step) for step in funnel(policy, nodes)],
        "nearest_relaxations": [] if left else [explain_relaxation(found) for found in relaxations(policy, present)],
    }


def _describe_step(step: Step) -> dict[str, Any]:
    return {"filter": step.field, "dropped": step.dropped, "left": step.left}


async def show_node(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await authenticate(request, "inference")
    wanted = request.match_info["node_id"]
    row = services.table.get(NodeId(wanted.lower()))
    if row is None:
        raise NotFound(f"There is no node {wanted[:60]!r}. 'sparewatt nodes' shows them.")
    return json_reply(describe_for(row, who, services) | work_of(row, await all_work(services)))


Work = Sequence[Mapping[str, NodeWork]]
"""What each process of this gateway had nodes do."""


def own_work(services: Services) -> dict[str, NodeWork]:
    """Of the nodes that had jobs of this process."""
    return {
        row.id: NodeWork(row.own_jobs, row.jobs_done, row.jobs_failed)
        for row in services.table
        if row.own_jobs or row.jobs_done or row.jobs_failed
    }


async def all_work(services: Services) -> Work:
    if not services.place.others:
        return ()  # what a row says is all there is
    told = await services.siblings.asker.ask_all(WORK, Nothing())
    return [own_work(services), *(each.nodes for each in told)]


def work_of(row: NodeRow, work: Work) -> dict[str, int]:
    done = [each[row.id] for each in work if row.id in each]
    return (
        {
            "in_flight": sum(each.in_flight for each in done),
            "jobs_done": sum(each.done for each in done),
            "jobs_failed": sum(each.failed for each in done),
        }
        if work
        else {}
    )


def describe_for(row: NodeRow, who: Principal, services: Services) -> dict[str, Any]:
    """What a machine's sensors say is for its owner and for operators: it tells when somebody is at home."""
    is_own = row.owner is not None and row.owner == who.account_id
    sensors = services.desk.power.latest(row.id) if may_know_all(row, who) else None
    return describe_node(row, services) | {"yours": is_own, "sensors": _describe_sensors(sensors)}


def describe_node(row: NodeRow, services: Services) -> dict[str, Any]:
    specs = row.specs
    return {
        "id": row.id,
        "handle": handle_of(row.id, secret=services.handle_secret),
        "name": specs.name,
        "region": specs.region,
        "state": services.state_of(row).value,
        "gpu": specs.gpu,
        "gpu_count": specs.gpu_count,
        "agent_version": specs.agent_version,
        "backend": specs.backend,
        "claimed": {
            "vram_bytes": specs.vram_bytes,
            "tflops": specs.tflops,
            "hourly_usd": _hourly_usd(specs),
        },
        "measured": {"tflops": specs.tflops_measured},
        "gpus": [_describe_gpu(gpu) for gpu in specs.gpus],
        "paused": row.load.paused,
        "kv_used": row.load.kv_used,
        "models": [_describe_model(model, hourly_price_nano=specs.hourly_price_nano) for model in specs.models],
        "running": row.load.running,
        "queued": row.load.queued,
        "slots": specs.slots,
        "rtt_ms": round(row.rtt_s * 1000, 3),
        "in_flight": row.own_jobs,
        "jobs_done": row.jobs_done,
        "jobs_failed": row.jobs_failed,
        "last_seen_at": services.clock.unix_s() if row.connected else row.last_seen_unix_s,
    }


def _hourly_usd(specs: NodeSpecs) -> str | None:
    """None where the owner asks by the token alone."""
    asks = is_paid_by_the_hour(specs.models, hourly_price_nano=specs.hourly_price_nano)
    return format_usd(specs.hourly_price_nano) if asks else None


def _describe_model(model: ModelReport, *, hourly_price_nano: int) -> dict[str, Any]:
    derived = derivation_of(model, hourly_price_nano=hourly_price_nano)
    return {
        "id": model.id,
        "state": model.state,
        "context_length": model.context_length,
        "quantization": model.quantization,
        "weights_digest": model.weights_digest,
        "capabilities": model.capabilities,
        "claimed": _describe_speed(model.claimed),
        "measured": _describe_speed(model.measured),
        "price": {
            "prompt_usd_per_mtok": format_usd(model.prompt_price_nano),
            "completion_usd_per_mtok": format_usd(model.completion_price_nano),
            "prompt_derivation": derived.prompt,
            "completion_derivation": derived.completion,
        },
    }


def _describe_speed(speed: Speed | None) -> dict[str, float] | None:
    if speed is None:
        return None
    alone = {"ttft_s": speed.ttft_s, "prefill_tps": speed.prefill_tps, "decode_tps": speed.decode_tps}
    if speed.batch is None or speed.batch_decode_tps is None or speed.batch_ttft_s is None:
        return alone
    return alone | {
        "batch": speed.batch,
        "batch_decode_tps": speed.batch_decode_tps,
        "batch_ttft_s": speed.batch_ttft_s,
    }


def _describe_gpu(gpu: GpuSpec) -> dict[str, Any]:
    return {
        "model": gpu.model,
        "vendor": gpu.vendor,
        "driver": gpu.driver,
        "vram_bytes": gpu.vram_bytes,
        "measured": {"copy_bytes_s": gpu.copy_bytes_s, "fp16_tflops": gpu.fp16_tflops},
    }


def _describe_sensors(sensors: Sensors | None) -> dict[str, Any] | None:
    """As told with the last heartbeat; None of a node that is away or has none."""
    if sensors is None:
        return None
    return {
        "power_watts": sensors.power_watts,
        "gpus": [
            {
                "vram_free_bytes": gpu.vram_free_bytes,
                "power_watts": gpu.power_watts,
                "temperature_c": gpu.temperature_c,
                "utilisation": gpu.utilisation,
            }
            for gpu in sensors.gpus
        ],
    }
