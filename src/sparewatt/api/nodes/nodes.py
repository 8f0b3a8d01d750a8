"""GET /v1/nodes and /v1/nodes/{node_id}: every node, with what it claims and what was measured side by side.

A query string in the vocabulary of a policy lists only the nodes that this policy allows, in its order; the reply has
how many nodes each filter dropped. Lists come in pages. Jobs are counted over all processes of this gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web
from msgspec import UNSET

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.nodes.node_listing import NameKey, NodeListing, PolicyKey
from sparewatt.api.paging import PAGE_QUERY, read_cursor, read_limit, take_turns, write_cursor
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
from sparewatt.policy.formatter import to_object
from sparewatt.policy.model_names.parser import without_directories
from sparewatt.policy.parser import read_query
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
)
from sparewatt.protocol.link.node_report import GpuSpec, ModelReport, NodeSpecs, Sensors, Speed
from sparewatt.protocol.link.reference_load import REFERENCE_TOKENS
from sparewatt.telemetry.feed.public import handle_of, may_know_all

PAGE_MODELS_MAX = 2_000
"""On one page: a megabyte of JSON, encoded in some milliseconds."""
MODEL_STEPS = 4
"""Units of work to describe one model."""
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

    @endpoint("GET /v1/nodes", access="inference", query=("region", "gpu", "gpu_class", "sort", *PAGE_QUERY))
    async def list_nodes(self, request: web.Request, principal: Principal) -> NodeList:
        """List the nodes, by any field of a policy, 200 to a page."""
        conditions = [(name, value) for name, value in request.query.items() if name not in PAGE_QUERY]
        policy = read_query(conditions) if conditions else None
        after = read_cursor(request, NameKey) if policy is None else read_cursor(request, PolicyKey)
        limit = read_limit(request)
        listing = NodeListing(policy, after=after, limit=limit)
        await take_turns(list(self.table), listing.add)
        data, following = await self._describe_page(listing.page.items(), principal, limit)
        return NodeList(
            data=data,
            next=following,
            policy=UNSET if policy is None else to_object(policy),
            total=UNSET if policy is None else listing.total,
            allowed=listing.allowed,
            funnel=listing.funnel(),
            nearest_relaxations=listing.nearest_relaxations(),
        )

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

    async def _describe_page(
        self, found: Sequence[tuple[tuple[Any, ...], NodeRow]], principal: Principal, limit: int
    ) -> tuple[list[Node], str | None]:
        """The nodes of a page, and the cursor behind them. `found` has one more than the page, if one follows."""
        peer_work = await self._ask_peers()
        fits = _fitting(found, limit)
        described: list[Node] = []

        def describe(row: NodeRow) -> int:
            described.append(self._describe(row, principal, peer_work))
            return MODEL_STEPS * len(row.specs.models)

        await take_turns([row for _, row in found[:fits]], describe)
        return described, write_cursor(found[fits - 1][0]) if fits < len(found) else None

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


def _fitting(found: Sequence[tuple[tuple[Any, ...], NodeRow]], limit: int) -> int:
    """How many of them are on one page: at least one, and fewer than `limit` if they have very many models."""
    models = 0
    for count, (_, row) in enumerate(found[:limit]):
        models += len(row.specs.models)
        if count and models > PAGE_MODELS_MAX:
            return count
    return min(len(found), limit)


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
