"""GET /v1/pulse: what this gateway does right now, for its operators; `sparewatt top` is made of it.

Counts only ever grow: whoever asks twice knows the rates, and nobody here has to keep them. The public port has no
`/metrics`; this is the part of it that a person watches from afar, by an operator's key.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappush, heapreplace
from operator import itemgetter
from typing import Any

from aiohttp import web

from sparewatt.core.limits import METRICS_MODELS_MAX, PULSE_NODES_MAX
from sparewatt.gateway.feeds.public import vram_gb_of
from sparewatt.gateway.http import authenticate_operator, json_reply
from sparewatt.gateway.metrics.histogram import TIMES_S
from sparewatt.gateway.metrics.job_meter import ModelMeter
from sparewatt.gateway.metrics.turns import in_turns
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.matcher.health import state_of
from sparewatt.inference.matcher.model import NodeRow, NodeState
from sparewatt.protocol.node import Sensors

TROUBLED_MAX = PULSE_NODES_MAX // 4
BUSIEST_MAX = PULSE_NODES_MAX - TROUBLED_MAX
GONE_S = 3600.0
"""A node that is away for longer is no news."""
_WELL = (NodeState.ONLINE, NodeState.BUSY)
_EMPTY = ModelMeter()
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
        self.models_writing, self._nodes_writing = services.dispatcher.being_written()
        self._now_s, self._unix_s = services.clock.now_s(), services.clock.unix_s()
        self.states: Counter[str] = Counter()
        self.gpus = self.vram_gb = 0
        self.models: dict[str, tuple[int, int]] = {}
        """How many that are there have each, and how many have it loaded."""
        self._busiest: list[_Ranked] = []
        self._troubled: list[_Ranked] = []

    def add(self, row: NodeRow) -> None:
        state = state_of(row, now_s=self._now_s, rules=self._services.health)
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

    def busiest(self) -> list[dict[str, Any]]:
        return self._described(self._busiest)

    def troubled(self) -> list[dict[str, Any]]:
        """Those that failed the most jobs first."""
        return self._described(self._troubled)

    def _described(self, ranked: list[_Ranked]) -> list[dict[str, Any]]:
        ordered = sorted(ranked, key=itemgetter(0, 1, 2), reverse=True)
        return [self._describe(row, state) for *_, row, state in ordered]

    def _describe(self, row: NodeRow, state: NodeState) -> dict[str, Any]:
        tokens = self._services.meters.jobs.node_tokens.get(row.id, 0) + self._nodes_writing[row.id]
        return _describe_node(row, state, tokens=tokens) | _describe_sensors(self._services.desk.power.latest(row.id))


def _keep(heap: list[_Ranked], ranked: _Ranked, most: int) -> None:
    """The largest so many. No two are alike before their row comes: each has a number of its own."""
    if len(heap) < most:
        heappush(heap, ranked)
    elif ranked[:3] > heap[0][:3]:
        heapreplace(heap, ranked)


async def describe_pulse(services: Services) -> dict[str, Any]:
    survey = Survey(services)
    await in_turns(list(services.table), survey.add)
    return {
        "object": "pulse",
        "at": services.clock.unix_s(),
        "started_at": services.started_unix_s,
        "instance": services.live.frames.run,
        "totals": {"nodes": survey.states, "gpus": survey.gpus, "vram_gb": survey.vram_gb},
        "running": services.dispatcher.running,
        "waiting": services.admission.waiting,
        "tokens_written": services.dispatcher.tokens,
        "errors": services.history.tally.errors,
        "first_token_bounds_s": TIMES_S,
        "models": _models(services, survey),
        "busiest": survey.busiest(),
        "troubled": survey.troubled(),
    }


def _models(services: Services, survey: Survey) -> list[dict[str, Any]]:
    """Those that were asked for, and those that are served."""
    nodes, writing = survey.models, survey.models_writing
    meters, waiting = services.meters.jobs.models, services.admission.waiting_by_model()
    served = sorted(nodes, key=lambda model: (-services.table.in_flight(model), model))
    return [
        {
            "id": model,
            "nodes": nodes.get(model, (0, 0))[0],
            "warm": nodes.get(model, (0, 0))[1],
            "running": services.table.in_flight(model),
            "waiting": waiting.get(model, 0),
            **_describe_meter(meters.get(model, _EMPTY), writing[model]),
        }
        for model in dict.fromkeys([*meters, *served[:METRICS_MODELS_MAX]])
    ]


def _describe_meter(meter: ModelMeter, writing: int) -> dict[str, Any]:
    """With what running jobs have written: a long answer must not look like a pause."""
    return {
        "requests": meter.ends,
        "prompt_tokens": meter.prompt_tokens,
        "completion_tokens": meter.completion_tokens + writing,
        "first_token_counts": meter.first_token.counts,
    }


def _describe_node(row: NodeRow, state: NodeState, *, tokens: int) -> dict[str, Any]:
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
        "tokens": tokens,
        "jobs_done": row.jobs_done,
        "jobs_failed": row.jobs_failed,
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
