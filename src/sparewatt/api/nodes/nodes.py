"""GET /v1/nodes and /v1/nodes/{node_id}: every node, with what it claims and what was measured side by side.

A query string in the vocabulary of a policy lists only the nodes that this policy allows, in its order, and says how
many nodes each of its filters dropped. Jobs are counted over all processes of this gateway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import get
from sparewatt.api.nodes.node_reply import node_of
from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import WORK, EmptyMessage, NodeWork, WorkReply
from sparewatt.core.clock import Clock
from sparewatt.core.errors import NotFound
from sparewatt.core.ids import NodeId
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.facts import facts_of
from sparewatt.inference.fleet.node_states import NodeStates
from sparewatt.inference.fleet.power_readings import PowerReadings
from sparewatt.inference.matcher.model import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.formatter import explain_relaxation, to_object
from sparewatt.policy.list_order import sort_key
from sparewatt.policy.model import Policy
from sparewatt.policy.parser import read_query
from sparewatt.policy.relaxation import check_node, funnel, relaxations
from sparewatt.protocol.api.nodes import Node, NodeList, PolicyFilterStep
from sparewatt.telemetry.feed.public import handle_of, may_know_all

PeerWork = Sequence[Mapping[str, NodeWork]]
"""By node, the jobs that each other process of this gateway sent."""


class NodeEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        table: NodeTable,
        states: NodeStates,
        power: PowerReadings,
        peers: PeerClient,
        handle_secret: bytes,
        clock: Clock,
    ) -> None:
        """`handle_secret`: keys the handles by which the public feed names nodes."""
        self._auth = auth
        self._table = table
        self._states = states
        self._power = power
        self._peers = peers
        self._handle_secret = handle_secret
        self._clock = clock

    @get("/v1/nodes", query=("region", "gpu", "gpu_class", "sort"))
    async def list_nodes(self, request: web.Request) -> NodeList:
        """List the nodes, by any field of a policy."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        policy = read_query(request.query.items()) if request.query else None
        peer_work = await self._ask_peers()
        rows = sorted(self._table, key=lambda row: (not row.connected, row.specs.name, row.id))
        if policy is None:
            return NodeList(data=[self._describe(row, principal, peer_work) for row in rows])
        return self._filter(policy, rows, principal, peer_work)

    @get("/v1/nodes/{node_id}")
    async def show_node(self, request: web.Request) -> Node:
        """Show one node."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        node_id = request.match_info["node_id"]
        row = self._table.get(NodeId(node_id.lower()))
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
                for row in self._table
                if row.own_jobs or row.jobs_done or row.jobs_failed
            }
        )

    async def _ask_peers(self) -> PeerWork:
        return [reply.nodes for reply in await self._peers.ask_all(WORK, EmptyMessage())]

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
        return node_of(
            row,
            handle=handle_of(row.id, secret=self._handle_secret),
            state=self._states.of(row),
            work=total_work(row, peer_work),
            last_seen_unix_s=self._clock.unix_s() if row.connected else row.last_seen_unix_s,
            is_own=row.owner is not None and row.owner == principal.account_id,
            sensors=self._power.latest(row.id) if may_know_all(row, principal) else None,
        )


def total_work(row: NodeRow, peer_work: PeerWork) -> NodeWork:
    """The node's jobs of this process and of its peers."""
    shares = [by_node[row.id] for by_node in peer_work if row.id in by_node]
    return NodeWork(
        in_flight=row.own_jobs + sum(share.in_flight for share in shares),
        done=row.jobs_done + sum(share.done for share in shares),
        failed=row.jobs_failed + sum(share.failed for share in shares),
    )
