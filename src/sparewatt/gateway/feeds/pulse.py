"""GET /v1/pulse: what this gateway does right now, for its operators; `sparewatt top` is made of it.

Counts only ever grow: whoever asks twice knows the rates, and nobody here has to keep them. The public port has no
`/metrics`; this is the part of it that a person watches from afar, by an operator's key.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappush, heapreplace
from operator import itemgetter
from typing import Any

import msgspec
from aiohttp import web

from sparewatt.core.limits import METRICS_MODELS_MAX, PULSE_NODES_MAX
from sparewatt.gateway.feeds.counts import NO_JOB, count_all
from sparewatt.gateway.feeds.public import vram_gb_of
from sparewatt.gateway.http import authenticate_operator, json_reply
from sparewatt.gateway.metrics.histogram import TIMES_S
from sparewatt.gateway.metrics.turns import in_turns
from sparewatt.gateway.services import Services, services_of
from sparewatt.gateway.siblings.questions import Counts, ModelCounts, NodeCounts
from sparewatt.inference.matcher.model import NodeRow, NodeState
from sparewatt.protocol.node import Sensors

TROUBLED_MAX = PULSE_NODES_MAX // 4
BUSIEST_MAX = PULSE_NODES_MAX - TROUBLED_MAX
GONE_S = 3600.0
"""A node that is away for longer is no news."""
_WELL = (NodeState.ONLINE, NodeState.BUSY)
_IDLE = NodeCounts(0, 0, 0)
_NOTHING = ModelCounts(0, 0, dict(NO_JOB.ends), 0, 0, list(NO_JOB.first_token.counts))
_Ranked = tuple[int, int, int, NodeRow, NodeState]


async def show_pulse(request: web.Request) -> web.StreamResponse:
    """What this gateway does now: counts since it started, and its busiest and most troubled nodes."""
    services = services_of(request)
    await authenticate_operator(request)
    return json_reply(await describe_pulse(services))


class Survey:
    """Of all nodes, counts, and those few that a person should see."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._unix_s = services.clock.unix_s()
        self.states: Counter[str] = Counter()
        self.gpus = self.vram_gb = 0
        self.models: dict[str, tuple[int, int]] = {}
        """How many that are there have each, and how many have it loaded."""
        self._busiest: list[_Ranked] = []
        self._troubled: list[_Ranked] = []

    def add(self, row: NodeRow) -> None:
        state = self._services.state_of(row)
        self.states[state.value] += 1
        if state in _WELL:
            _keep(self._busiest, (row.jobs_there, row.jobs_done, -row.index, row, state), BUSIEST_MAX)
        elif state is not NodeState.OFFLINE or self._unix_s - (row.last_seen_unix_s or 0.0) < GONE_S:
            _keep(self._troubled, (row.jobs_failed, row.jobs_done, -row.index, row, state), TROUBLED_MAX)
        if state is not NodeState.OFFLINE:
            self.gpus += row.specs.gpu_count
            self.vram_gb += vram_gb_of(row)
            for model in row.specs.models:
                nodes, warm = self.models.get(model.id, (0, 0))
                self.models[model.id] = nodes + 1, warm + (model.state == "warm")

    @property
    def shown(self) -> list[str]:
        return [row.id for *_, row, _ in (*self._busiest, *self._troubled)]

    def busiest(self, counts: Counts) -> list[dict[str, Any]]:
        return self._described(self._busiest, counts)

    def troubled(self, counts: Counts) -> list[dict[str, Any]]:
        """Those that failed the most jobs first."""
        return self._described(self._troubled, counts)

    def _described(self, ranked: list[_Ranked], counts: Counts) -> list[dict[str, Any]]:
        ordered = sorted(ranked, key=itemgetter(0, 1, 2), reverse=True)
        latest = self._services.desk.power.latest
        return [_describe_node(row, state, counts) | _describe_sensors(latest(row.id)) for *_, row, state in ordered]


def _keep(heap: list[_Ranked], ranked: _Ranked, most: int) -> None:
    """The largest so many. No two are alike before their row comes: each has a number of its own."""
    if len(heap) < most:
        heappush(heap, ranked)
    elif ranked[:3] > heap[0][:3]:
        heapreplace(heap, ranked)


async def describe_pulse(services: Services) -> dict[str, Any]:
    survey = Survey(services)
    await in_turns(list(services.table), survey.add)
    counts = await count_all(services, survey.shown)
    return {
        "object": "pulse",
        "at": services.clock.unix_s(),
        "started_at": services.started_unix_s,
        "instance": counts.instance,
        "totals": {"nodes": survey.states, "gpus": survey.gpus, "vram_gb": survey.vram_gb},
        "running": counts.running,
        "waiting": counts.waiting,
        "tokens_written": counts.tokens_written,
        "errors": counts.errors,
        "first_token_bounds_s": TIMES_S,
        "models": _models(survey.models, counts),
        "busiest": survey.busiest(counts),
        "troubled": survey.troubled(counts),
    }


def _models(served: dict[str, tuple[int, int]], counts: Counts) -> list[dict[str, Any]]:
    """Those that were asked for, and those that are served."""
    known = sorted(served, key=lambda model: (-counts.models.get(model, _NOTHING).running, model))
    return [
        {
            "id": model,
            "nodes": served.get(model, (0, 0))[0],
            "warm": served.get(model, (0, 0))[1],
            **msgspec.structs.asdict(counts.models.get(model, _NOTHING)),
        }
        for model in dict.fromkeys([*counts.models, *known[:METRICS_MODELS_MAX]])
    ]


def _describe_node(row: NodeRow, state: NodeState, counts: Counts) -> dict[str, Any]:
    work = counts.nodes.get(row.id, _IDLE)
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
        "tokens": work.tokens,
        "jobs_done": work.done,
        "jobs_failed": work.failed,
        "rtt_ms": round(row.rtt_s * 1000, 3),
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
