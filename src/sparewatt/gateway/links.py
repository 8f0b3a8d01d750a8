"""The gateway's side of all node links: lets nodes in, keeps the table of nodes true, notices the silent ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import msgspec
from aiohttp import web

from sparewatt import __version__
from sparewatt.accounts.tokens import JoinTokens
from sparewatt.core.clock import Clock
from sparewatt.core.errors import JoinRefused, LinkLost, ProtocolViolation, StoreUnavailable
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.limits import LINK_MESSAGE_BYTES_MAX, LINK_UNAUTHENTICATED_MAX
from sparewatt.core.log import Log
from sparewatt.core.rng import Rng
from sparewatt.gateway.names import Names
from sparewatt.gateway.power import PowerBoard
from sparewatt.gateway.siblings.place import ALONE, Place
from sparewatt.inference.matcher.health import is_offline
from sparewatt.inference.matcher.model import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link.gateway_end import NodeLink
from sparewatt.link.handshake import Visitor, identify
from sparewatt.link.outbox import Outbox
from sparewatt.link.sockets import AiohttpSocket, Socket
from sparewatt.protocol.link import Op, Reject, Welcome, encode_message
from sparewatt.protocol.node import NodeLoad, NodeSpecs
from sparewatt.protocol.receipts import Countersigned, Signed

_log = Log("sparewatt.links")


@dataclass(slots=True)
class Held:
    """A link and the task that holds it."""

    link: NodeLink
    task: asyncio.Task[str]


class LinkDesk:
    """Implements LinkObserver. `links` is what dispatch looks nodes up in."""

    def __init__(
        self,
        *,
        table: NodeTable,
        tokens: JoinTokens,
        hosts: Collection[str],
        health: HealthRules,
        clock: Clock,
        rng: Rng,
        place: Place = ALONE,
    ) -> None:
        self._place = place
        self._table = table
        self._tokens = tokens
        self._hosts = hosts
        self._health = health
        self._clock = clock
        self._rng = rng
        self._held: dict[NodeId, Held] = {}
        self._knocking = 0
        self.links: dict[NodeId, NodeLink] = {}
        self.version = 0
        """Another one whenever `links` has changed."""
        self.owners: dict[NodeId, AccountId] = {}
        """Whose each known node is, also of those that are away."""
        self.names = Names()
        self.joined_unix_s: dict[NodeId, float] = {}
        """When each came that nobody knew when this gateway started."""
        self.power = PowerBoard()
        self.changed: set[NodeId] = set()
        """Nodes whose stored row is out of date."""
        self.take_receipt: Callable[[NodeId, Signed], None] = lambda _node, _signed: None
        self.on_left: Callable[[NodeId], None] = lambda _node: None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The WebSocket route."""
        ws = web.WebSocketResponse(max_msg_size=LINK_MESSAGE_BYTES_MAX, compress=False, autoping=True)
        await ws.prepare(request)
        socket = AiohttpSocket(ws)
        try:
            await self.serve(socket)
        finally:
            await socket.close()
        return ws

    async def serve(self, socket: Socket) -> None:
        """One connection from its first byte to its last."""
        try:
            visitor = await self._let_in(socket)
        except JoinRefused as refused:
            _log.info("join_refused", reason=refused.reason)
            await self._reject(socket, reason=refused.reason, message=refused.message)
        except ProtocolViolation as error:
            await self._reject(socket, reason="protocol", message=error.message)
        except LinkLost:
            return
        except StoreUnavailable:
            _log.warning("join_postponed", reason="database")
            await self._reject(
                socket, reason="unavailable", message="The gateway's database is away. Try again.", final=False
            )
        else:
            await self._hold(visitor, socket)

    async def _let_in(self, socket: Socket) -> Visitor:
        if self._knocking >= LINK_UNAUTHENTICATED_MAX:
            raise LinkLost("too many nodes are joining at once")
        self._knocking += 1
        try:
            visitor = await identify(socket, hosts=self._hosts, gateway_version=__version__, rng=self._rng)
            owner = await self._tokens.admit(visitor.node_id, visitor.token)
            if visitor.node_id not in self.owners:
                self.joined_unix_s[visitor.node_id] = self._clock.unix_s()
            self.owners[visitor.node_id] = owner
            await socket.send(encode_message(Op.WELCOME, self._welcome()))
        finally:
            self._knocking -= 1
        return visitor

    def _welcome(self) -> Welcome:
        return Welcome(
            heartbeat_s=self._health.heartbeat_s,
            gateway_version=__version__,
            takes_sheets=True,
            link_ports=self._place.link_ports,
            link_port=self._place.link_port,
        )

    async def _reject(self, socket: Socket, *, reason: str, message: str, final: bool = True) -> None:
        try:
            reject = Reject(reason=reason, message=message[:500], final=final)
            await socket.send(encode_message(Op.REJECT, reject))
        except LinkLost:
            return

    async def _hold(self, visitor: Visitor, socket: Socket) -> None:
        """Carry jobs until either side ends it. Every open job learns of the end at once."""
        node_id, specs = visitor.node_id, self._named(visitor.node_id, visitor.specs)
        self._end(node_id, "replaced by a newer link of the same node")
        if not self._table.connect(node_id, specs, now_s=self._clock.now_s()):
            _log.warning("node_turned_away", node=node_id, why="the table is full")
            return
        self._table.set_owner(node_id, self.owners[node_id])
        outbox = Outbox()
        link = NodeLink(node_id, outbox=outbox, observer=self, clock=self._clock)
        work = asyncio.create_task(self._carry(link, outbox, socket))
        held = self._held[node_id] = Held(link, work)
        self.links[node_id] = link
        self.version += 1
        self.changed.add(node_id)
        _log.info("node_joined", node=node_id, name=specs.name, models=len(specs.models))
        why = "the socket closed"
        try:
            await asyncio.wait([work])  # not the task itself: whoever ends the link cancels it
            why = why if work.cancelled() else work.result()
        finally:
            work.cancel()
            if self._held.get(node_id) is held:
                self._end(node_id, why)

    async def _carry(self, link: NodeLink, outbox: Outbox, socket: Socket) -> str:
        """Send, listen and ping until one of them cannot go on; tells why."""
        why = ""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(outbox.run(socket))
                tasks.create_task(self._listen(link, socket))
                tasks.create_task(self._ping(link))
        except* LinkLost as lost:
            why = str(lost.exceptions[0])
        except* ProtocolViolation as violations:
            why = f"it broke the protocol: {violations.exceptions[0]}"
            _log.warning("link_violated", node=link.node_id, what=str(violations.exceptions[0]))
        return why

    async def _listen(self, link: NodeLink, socket: Socket) -> None:
        while True:
            link.receive(await socket.receive())

    async def _ping(self, link: NodeLink) -> None:
        while True:
            link.ping()
            await asyncio.sleep(self._health.heartbeat_s)

    def _end(self, node_id: NodeId, why: str) -> None:
        held = self._held.pop(node_id, None)
        if held is None:
            return
        self.links.pop(node_id, None)
        self.version += 1
        self._table.disconnect(node_id, unix_s=self._clock.unix_s())
        self.power.forget(node_id)
        self.on_left(node_id)
        self.changed.add(node_id)
        held.task.cancel()
        held.link.lost(why)
        _log.info("node_left", node=node_id, why=why)

    def drop_silent(self) -> None:
        """Give up on links whose heartbeats stopped: the socket may never say so."""
        now_s = self._clock.now_s()
        for node_id in list(self._held):
            row = self._table.get(node_id)
            if row is not None and is_offline(row, now_s=now_s, rules=self._health):
                self._end(node_id, "its heartbeats stopped")

    def drop(self, node_ids: Iterable[NodeId], *, why: str) -> None:
        """End these nodes' links, where there are any."""
        for node_id in node_ids:
            self._end(node_id, why)

    def say_goodbye(self, reason: str) -> None:
        """This gateway stops: nodes are told, so that they dial again later without alarm."""
        for held in self._held.values():
            held.link.say_goodbye(reason)

    def _named(self, node_id: NodeId, specs: NodeSpecs) -> NodeSpecs:
        name = self.names.claim(node_id, self.owners[node_id], specs.name)
        return specs if name == specs.name else msgspec.structs.replace(specs, name=name)

    # what links report

    def on_specs(self, node_id: NodeId, specs: NodeSpecs) -> None:
        self._table.set_specs(node_id, self._named(node_id, specs))
        self.changed.add(node_id)

    def on_load(self, node_id: NodeId, load: NodeLoad) -> None:
        if load.sensors is not None:
            self.power.note(node_id, load.sensors, unix_s=self._clock.unix_s())
        self._table.set_load(node_id, load, now_s=self._clock.now_s())

    def on_rtt(self, node_id: NodeId, rtt_s: float) -> None:
        self._table.set_rtt(node_id, rtt_s, now_s=self._clock.now_s())

    def on_receipt(self, node_id: NodeId, signed: Signed) -> None:
        self.take_receipt(node_id, signed)

    def countersign(self, node_id: NodeId, message: Countersigned) -> None:
        """A node that has left in the meantime sends its receipts again, and is answered then."""
        if (link := self.links.get(node_id)) is not None:
            link.countersign(message)
