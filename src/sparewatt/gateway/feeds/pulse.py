"""GET /v1/pulse: what this gateway does right now, for its operators; `sparewatt top` is made of it.

Counts only ever grow: whoever asks twice knows the rates, and nobody here has to keep them. The public port has no
`/metrics`; this is the part of it that a person watches from afar, by an operator's key.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Any

from aiohttp import web

from sparewatt.core.limits import METRICS_MODELS_MAX, PULSE_NODES_MAX
from sparewatt.gateway.http import authenticate_operator, json_reply
from sparewatt.gateway.metrics.histogram import TIMES_S
from sparewatt.gateway.metrics.job_meter import ModelMeter
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.matcher.health import state_of
from sparewatt.inference.matcher.model import NodeRow, NodeState
from sparewatt.protocol.node import Sensors

TROUBLED_MAX = PULSE_NODES_MAX // 4
GONE_S = 3600.0
"""A node that is away for longer is no news."""
_WELL = (NodeState.ONLINE, NodeState.BUSY)
_EMPTY = ModelMeter()


async def show_pulse(request: web.Request) -> web.StreamResponse:
    """What this gateway does now: counts since it started, and its busiest and most troubled nodes."""
    services = services_of(request)
    await authenticate_operator(request)
    return json_reply(describe_pulse(services))


def describe_pulse(services: Services) -> dict[str, Any]:
    now_s = services.clock.now_s()
    states = [(row, state_of(row, now_s=now_s, rules=services.health)) for row in services.table]
    busiest = nlargest(
        PULSE_NODES_MAX - TROUBLED_MAX,
        ((row, state) for row, state in states if state in _WELL),
        key=lambda each: (each[0].jobs_there, each[0].jobs_done, -each[0].index),
    )
    troubled = nlargest(
        TROUBLED_MAX,
        ((row, state) for row, state in states if _is_troubled(row, state, services)),
        key=lambda each: (each[0].jobs_failed, -each[0].index),
    )
    return {
        "object": "pulse",
        "at": services.clock.unix_s(),
        "started_at": services.started_unix_s,
        "instance": services.live.frames.run,
        "totals": services.live.totals(),
        "running": services.dispatcher.running,
        "waiting": services.admission.waiting,
        "tokens_written": services.dispatcher.tokens,
        "errors": services.history.tally.errors,
        "first_token_bounds_s": TIMES_S,
        "models": _models(services),
        "busiest": [_describe_node(*each, services) for each in busiest],
        "troubled": [_describe_node(*each, services) for each in troubled],
    }


def _is_troubled(row: NodeRow, state: NodeState, services: Services) -> bool:
    if state is NodeState.OFFLINE:
        return services.clock.unix_s() - (row.last_seen_unix_s or 0.0) < GONE_S
    return state not in _WELL


def _models(services: Services) -> list[dict[str, Any]]:
    """Those that were asked for, and those that are served."""
    meters, waiting = services.meters.jobs.models, services.admission.waiting_by_model()
    served = sorted(services.table.model_ids(), key=lambda model: (-services.table.in_flight(model), model))
    shown = dict.fromkeys([*meters, *served[:METRICS_MODELS_MAX]])
    nodes = _nodes_by_model(services.table)
    return [
        {
            "id": model,
            "nodes": nodes.get(model, (0, 0))[0],
            "warm": nodes.get(model, (0, 0))[1],
            "running": services.table.in_flight(model),
            "waiting": waiting.get(model, 0),
            **_describe_meter(meters.get(model, _EMPTY)),
        }
        for model in shown
    ]


def _nodes_by_model(rows: Iterable[NodeRow]) -> dict[str, tuple[int, int]]:
    """How many that are there have it, and how many have it loaded."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        for model in row.specs.models if row.connected else ():
            nodes, warm = found.get(model.id, (0, 0))
            found[model.id] = nodes + 1, warm + (model.state == "warm")
    return found


def _describe_meter(meter: ModelMeter) -> dict[str, Any]:
    return {
        "requests": meter.ends,
        "prompt_tokens": meter.prompt_tokens,
        "completion_tokens": meter.completion_tokens,
        "first_token_counts": meter.first_token.counts,
    }


def _describe_node(row: NodeRow, state: NodeState, services: Services) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.specs.name,
        "region": row.specs.region,
        "gpu": row.specs.gpu,
        "state": state.value,
        "paused": row.load.paused,
        "running": row.jobs_there,
        "queued": row.load.queued,
        "slots": row.specs.slots,
        "tokens": services.meters.jobs.node_tokens.get(row.id, 0),
        "jobs_done": row.jobs_done,
        "jobs_failed": row.jobs_failed,
        "rtt_ms": round(row.rtt_s * 1000, 3),
        **_describe_sensors(services.desk.power.latest(row.id)),
    }


def _describe_sensors(sensors: Sensors | None) -> dict[str, float | None]:
    """Of several GPUs the hottest, and the mean of what they work."""
    gpus = sensors.gpus if sensors is not None else ()
    used = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    return {
        "power_watts": sensors.power_watts if sensors is not None else None,
        "temperature_c": max((gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None), default=None),
        "utilisation": sum(used) / len(used) if used else None,
    }
