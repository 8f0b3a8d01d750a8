"""GET /v1/nodes and /v1/nodes/{node_id}: every node, with what it claims and what was measured side by side.

A query string in the vocabulary of a policy lists only the nodes that this policy allows, in its order; the reply has
how many nodes each filter dropped. Jobs are counted over all processes of this gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import WORK, EmptyMessage, NodeWork, WorkReply
from sparewatt.core.clock import Clock
from sparewatt.core.errors import NotFound
from sparewatt.core.ids import NodeId
from sparewatt.core.money import format_usd
from sparewatt.inference.fleet.node_states import NodeStates
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.derivation import derivation_of, is_paid_by_the_hour
from sparewatt.inference.verdicts import facts_of
from sparewatt.policy.formatter import explain_relaxation, to_object
from sparewatt.policy.list_order import sort_key
from sparewatt.policy.model import Policy
from sparewatt.policy.model_names.parser import without_directories
from sparewatt.policy.parser import read_query
from sparewatt.policy.relaxation import check_node, funnel, relaxations
from sparewatt.protocol.api.nodes import (
    GpuMeasures,
    ModelPrice,
    ModelSpeed,
    Node,
    NodeClaims,
    NodeGpu,
    NodeList,
    NodeMeasures,
    NodeModel,
    NodeSensors,
    PolicyFilterStep,
)
from sparewatt.protocol.link.node_report import GpuSpec, ModelReport, NodeSpecs, Sensors, Speed
from sparewatt.protocol.link.reference_load import REFERENCE_TOKENS
from sparewatt.telemetry.feed.public import handle_of, may_know_all

PeerWork = Sequence[Mapping[str, NodeWork]]
"""By node, the jobs that each other process of this gateway sent."""


@dataclass(slots=True, kw_only=True)
class NodeEndpoints:
    table: NodeTable
    states: NodeStates
    sensors_of: Callable[[NodeId], Sensors | None]
    """The latest readings of a node."""
    peers: PeerClient
    price_notice: Callable[[ModelReport], str | None] = lambda _: None
    """What the owner of a node should know about its price for a model, if anything."""
    handle_secret: bytes
    """Keys the handles by which the public feed names nodes."""
    clock: Clock

    @endpoint("GET /v1/nodes", access="inference", query=("region", "gpu", "gpu_class", "sort"))
    async def list_nodes(self, request: web.Request, principal: Principal) -> NodeList:
        """List the nodes, by any field of a policy."""
        policy = read_query(request.query.items()) if request.query else None
        peer_work = await self._ask_peers()
        rows = sorted(self.table, key=lambda row: (not row.connected, row.specs.name, row.id))
        if policy is None:
            return NodeList(data=[self._describe(row, principal, peer_work) for row in rows])
        return self._filter(policy, rows, principal, peer_work)

    @endpoint("GET /v1/nodes/{node_id}", access="inference")
    async def show_node(self, request: web.Request, principal: Principal) -> Node:
        """Show one node."""
        node_id = request.match_info["node_id"]
        row = self.table.get(NodeId(node_id.lower()))
        if row is None:
            raise NotFound(f"There is no node {node_id[:60]!r}. 'sparewatt nodes' shows them.")
        return self._describe(row, principal, await self._ask_peers())

    def handlers(self) -> list[PeerHandler[Any, Any]]:
        return [PeerHandler(WORK, self.answer_work)]

    async def answer_work(self, _: EmptyMessage) -> WorkReply:
        """The nodes that had jobs of this process."""
        return WorkReply(
            {
                row.id: NodeWork(row.own_jobs, row.jobs_done, row.jobs_failed)
                for row in self.table
                if row.own_jobs or row.jobs_done or row.jobs_failed
            }
        )

    async def _ask_peers(self) -> PeerWork:
        return [reply.nodes for reply in await self.peers.ask_all(WORK, EmptyMessage())]

    def _filter(self, policy: Policy, rows: Sequence[NodeRow], principal: Principal, peer_work: PeerWork) -> NodeList:
        """The nodes that a policy allows, and why the others are not among them."""
        facts = {row.id: facts_of(row) for row in rows}
        allowed = [row for row in rows if check_node(policy, facts[row.id]) is None]
        allowed.sort(key=lambda row: (not row.connected, *sort_key(policy, facts[row.id])))
        connected = [facts[row.id] for row in rows if row.connected]
        nearest = [] if allowed else relaxations(policy, connected)
        return NodeList(
            data=[self._describe(row, principal, peer_work) for row in allowed],
            policy=to_object(policy),
            total=len(rows),
            funnel=[
                PolicyFilterStep(filter=step.field, dropped=step.dropped, left=step.left)
                for step in funnel(policy, list(facts.values()))
            ],
            nearest_relaxations=[explain_relaxation(relaxation) for relaxation in nearest],
        )

    def _describe(self, row: NodeRow, principal: Principal, peer_work: PeerWork) -> Node:
        """Sensors are for the owner and for operators only: they show when a person uses the machine."""
        specs, work = row.specs, total_work(row, peer_work)
        sensors = self.sensors_of(row.id) if may_know_all(row, principal) else None
        return Node(
            id=row.id,
            handle=handle_of(row.id, secret=self.handle_secret),
            name=specs.name,
            region=specs.region,
            state=self.states.of(row).value,
            gpu=specs.gpu,
            gpu_count=specs.gpu_count,
            agent_version=specs.agent_version,
            backend=specs.backend,
            claimed=NodeClaims(vram_bytes=specs.vram_bytes, tflops=specs.tflops, hourly_usd=_hourly_usd(specs)),
            measured=NodeMeasures(tflops=specs.tflops_measured),
            gpus=[_gpu_of(gpu) for gpu in specs.gpus],
            paused=row.load.paused,
            kv_used=row.load.kv_used,
            models=[
                _model_of(
                    model, hourly_price_nano=specs.hourly_price_nano, price_notice=self._price_notice_of(row, model)
                )
                for model in specs.models
            ],
            running=row.load.running,
            queued=row.load.queued,
            slots=specs.slots,
            rtt_ms=round(row.rtt_s * 1000, 3),
            in_flight=work.in_flight,
            jobs_done=work.done,
            jobs_failed=work.failed,
            last_seen_at=self.clock.unix_s() if row.connected else row.last_seen_unix_s,
            yours=row.owner is not None and row.owner == principal.account_id,
            sensors=None if sensors is None else msgspec.convert(sensors, NodeSensors, from_attributes=True),
        )

    def _price_notice_of(self, row: NodeRow, model: ModelReport) -> str | None:
        return self.price_notice(model) if row.connected else None


def total_work(row: NodeRow, peer_work: PeerWork) -> NodeWork:
    """The node's jobs of this process and of its peers."""
    shares = [by_node[row.id] for by_node in peer_work if row.id in by_node]
    return NodeWork(
        in_flight=row.own_jobs + sum(share.in_flight for share in shares),
        done=row.jobs_done + sum(share.done for share in shares),
        failed=row.jobs_failed + sum(share.failed for share in shares),
    )


def _hourly_usd(specs: NodeSpecs) -> str | None:
    has_hourly_price = is_paid_by_the_hour(specs.models, hourly_price_nano=specs.hourly_price_nano)
    return format_usd(specs.hourly_price_nano) if has_hourly_price else None


def _gpu_of(gpu: GpuSpec) -> NodeGpu:
    return NodeGpu(
        model=gpu.model,
        vendor=gpu.vendor,
        driver=gpu.driver,
        vram_bytes=gpu.vram_bytes,
        measured=GpuMeasures(copy_bytes_s=gpu.copy_bytes_s, fp16_tflops=gpu.fp16_tflops),
    )


def _model_of(model: ModelReport, *, hourly_price_nano: int, price_notice: str | None) -> NodeModel:
    derivation = derivation_of(model, hourly_price_nano=hourly_price_nano)
    return NodeModel(
        id=model.id,
        served_as=without_directories(model.served_as) if model.served_as is not None else None,
        state=model.state,
        context_length=model.context_length,
        quantization=model.quantization,
        weights_digest=model.weights_digest,
        capabilities=model.capabilities,
        claimed=_speed_of(model.claimed),
        measured=_speed_of(model.measured),
        price=ModelPrice(
            prompt_usd_per_mtok=format_usd(model.prompt_price_nano),
            completion_usd_per_mtok=format_usd(model.completion_price_nano),
            prompt_derivation=derivation.prompt,
            completion_derivation=derivation.completion,
            notice=price_notice,
        ),
    )


def _speed_of(speed: Speed | None) -> ModelSpeed | None:
    """Without the fields that were not measured."""
    if speed is None:
        return None
    fields = {name: value for name, value in msgspec.structs.asdict(speed).items() if value is not None}
    return ModelSpeed(first_token_s=round(speed.prefill_s(REFERENCE_TOKENS), 4), **fields)
