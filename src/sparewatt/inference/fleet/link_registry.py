"""The gateway's side of all node links: admits nodes, keeps the table of nodes up to date, drops the silent ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from sparewatt import __version__
from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.core.clock import Clock
from sparewatt.core.errors import JoinRefused, LinkError, LinkFlooded, LinkLost, ProtocolViolation, StoreUnavailable
from sparewatt.core.fair_queue import FairQueue
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.inference.fleet.away_models import AwayModels
from sparewatt.inference.fleet.fleet_limits import FleetBounds, FleetRates
from sparewatt.inference.fleet.model_catalog import ModelCatalog, server_id_of
from sparewatt.inference.fleet.name_registry import NameRegistry
from sparewatt.inference.fleet.node_admission import AdmittedNode, NodeAdmission
from sparewatt.inference.fleet.node_owners import NodeOwners
from sparewatt.inference.fleet.pinger import Pinger
from sparewatt.inference.fleet.power_readings import PowerReadings
from sparewatt.inference.fleet.unmet_demand import UnmetDemand
from sparewatt.inference.matcher.node_row import HealthRules, NodeRow, offline_rows
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link.gateway_end import NodeLink
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import CLOSE_S, Socket
from sparewatt.link.websocket_library import has_picows
from sparewatt.protocol.link.frames import (
    MODELS_NAMED_MAX,
    WANTED_MODELS_MAX,
    AssignedName,
    Goodbye,
    ModelNames,
    Opcode,
    Reject,
    SignedNodeKey,
    Welcome,
    encode_message,
)
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs, ServerMetrics
from sparewatt.protocol.link.receipts import Countersignature, SignedReceipts

FORGET_AFTER_S = 24 * 3600.0
"""A node that never served is forgotten after so long away."""

NAME_REASON_CHARS_MAX = 400
"""Why a model has not the name that its id suggests: a sentence, and an id at most."""

TOLD_PER_TICK = 100
"""Nodes whose notices are looked at in one tick of the event loop: with a few models each, a millisecond."""

_log = Logger("sparewatt.links")


class LinkPorts(NamedTuple):
    """Where the processes of this gateway take links: a node opens one to each. Empty for a gateway of one process."""

    all: tuple[int, ...] = ()
    own: int | None = None
    """This process's."""


class ReceiptTaker(Protocol):
    def on_receipt(self, node_id: NodeId, signed: SignedReceipts) -> None: ...


class LinkedNode:
    """A link, and the socket that it is on. Implements SocketListener."""

    __slots__ = ("_registry", "link", "models_told", "receive", "resume", "send_queue", "socket", "takes_names")

    def __init__(
        self, registry: LinkRegistry, link: NodeLink, send_queue: SendQueue, socket: Socket, *, takes_names: bool
    ) -> None:
        self._registry = registry
        self.takes_names = takes_names
        self.models_told: tuple[AssignedName, ...] | None = None
        """What the node was told that its models are called."""
        self.link = link
        self.send_queue = send_queue
        self.socket = socket
        self.receive = link.receive
        self.resume = send_queue.resume

    def start(self) -> None:
        self.send_queue.attach(self.socket, on_stuck=self.on_lost)
        self.socket.attach(self)

    def on_lost(self, error: LinkError) -> None:
        self._registry.on_lost(self, error)

    def stop(self, why: str) -> None:
        """Every open job learns of the end at once."""
        self.send_queue.drop()
        self.socket.close()
        self.link.on_lost(why)


class LinkRegistry:
    """Implements LinkObserver and LinkAcceptor."""

    def __init__(
        self,
        links: dict[NodeId, NodeLink],
        *,
        table: NodeTable,
        tokens: JoinTokens,
        hosts: Collection[str],
        health: HealthRules,
        clock: Clock,
        rng: Rng,
        ports: LinkPorts | None = None,
        receipts: ReceiptTaker | None = None,
        before_sending: Callable[[], None] | None = None,
        on_left: Callable[[NodeId], None] = lambda _node: None,
        catalog: ModelCatalog | None = None,
        demand: UnmetDemand | None = None,
        bounds: FleetBounds | None = None,
        on_forgotten: Callable[[NodeId], None] = lambda _node: None,
        on_node_key: Callable[[NodeId, SignedNodeKey], None] = lambda _node, _signed: None,
        price_notice: Callable[[ModelReport], str | None] = lambda _model: None,
        on_lease: Callable[[NodeId, LeaseAct | LeaseReport], None] = lambda _node, _said: None,
    ) -> None:
        """`links`: filled here; dispatch looks nodes up in it.

        `before_sending`: called by every link before its frames leave. `on_left`: called with a node that has left.
        `on_forgotten`: called with one that is no longer known. `on_node_key`: with a node's answer to a
        `NodeKeyRequest`. `price_notice`: what a node's owner is told about a price. `on_lease`: with what it says
        of its leases.
        """
        self.links = links
        self._ports = ports or LinkPorts()
        self._receipts = receipts
        self._before_sending = before_sending
        self._on_left = on_left
        self._on_forgotten = on_forgotten
        self._on_node_key = on_node_key
        self._price_notice = price_notice
        self._on_lease = on_lease
        self.catalog = catalog or ModelCatalog()
        self._demand = demand or UnmetDemand(clock=clock)
        self._table = table
        self._health = health
        self._clock = clock
        self._held: dict[NodeId, LinkedNode] = {}
        self._pinger = Pinger(every_s=health.heartbeat_s, clock=clock)
        self._visits: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._silent_from_s = 0.0
        """Before this time no link can have timed out, so none is checked."""
        self._line: FairQueue | None = None
        """Fair queueing between links with much to read."""
        self.knocks = 0
        """Connections that were opened here, whatever became of them."""
        self.version = 0
        """Another one whenever `links` has changed."""
        self.owners = NodeOwners()
        self.names = NameRegistry()
        self.joined_unix_s: dict[NodeId, float] = {}
        """When each node joined that was unknown when this gateway started."""
        self.power = PowerReadings()
        self.servers: dict[NodeId, ServerMetrics] = {}
        """The latest report of each connected node's model server."""
        self.changed: set[NodeId] = set()
        """Nodes whose stored row is out of date."""
        bounds = bounds or FleetBounds()
        self._rates = FleetRates(bounds.models_per_account)
        self.admission = NodeAdmission(
            owners=self.owners,
            tokens=tokens,
            hosts=hosts,
            bounds=bounds,
            rates=self._rates,
            clock=clock,
            rng=rng,
        )
        self._away = AwayModels(
            per_account_max=bounds.models_per_account, unserved_nodes_max=bounds.unserved_nodes_kept
        )
        self._specs_waiting: dict[NodeId, NodeSpecs] = {}
        """Of nodes that report more often than the table is written, their last specs."""

    @staticmethod
    def can_adopt() -> bool:
        return has_picows()

    def adopt(self, transport: asyncio.Transport, head: bytes, *, address: str) -> asyncio.BaseProtocol:
        """Take over a connection whose front end has read `head`, a request for the link's path and what followed it.

        Only where `can_adopt` says so. Once the node has joined it needs no task.
        """
        from sparewatt.link.picows_sockets import adopt  # noqa: PLC0415 (there are machines without picows)

        self._line = self._line or FairQueue(asyncio.get_running_loop().call_soon, at_once=1)
        return adopt(transport, head, partial(self._on_socket, address), read_queue=self._line)

    def _on_socket(self, address: str, socket: Socket) -> None:
        visit = asyncio.create_task(self.serve(socket, address=address))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def serve(self, socket: Socket, *, address: str) -> None:
        """One connection from `address` until it is a link or is sent away. A link lives by what its socket calls."""
        self.knocks += 1
        try:
            visitor = await self._let_in(socket, address)
        except JoinRefused as refused:
            _log.info("join_refused", reason=refused.reason)
            self._reject(socket, reason=refused.reason, message=refused.message, final=refused.final)
        except LinkFlooded:
            socket.abort()  # and with it what it has buffered
        except ProtocolViolation as error:
            self._reject(socket, reason="protocol", message=error.message)
        except LinkLost:
            socket.close()
        except StoreUnavailable:
            _log.warning("join_postponed", reason="database")
            self._reject(
                socket, reason="unavailable", message="The gateway's database is away. Try again.", final=False
            )
        except BaseException:
            socket.abort()
            raise
        else:
            self._hold(visitor, socket)

    async def _let_in(self, socket: Socket, address: str) -> AdmittedNode:
        if self._is_closed:
            raise LinkLost("the gateway is stopping")
        admitted = await self.admission.admit(socket, address=address)
        node_id = admitted.id
        if node_id not in self.owners:
            self.joined_unix_s[node_id] = self._clock.unix_s()
        self.owners[node_id] = admitted.owner
        socket.send(encode_message(Opcode.WELCOME, self._welcome()))
        return admitted

    def _welcome(self) -> Welcome:
        return Welcome(
            heartbeat_s=self._health.heartbeat_s,
            gateway_version=__version__,
            takes_sheets=True,
            link_ports=self._ports.all,
            link_port=self._ports.own,
        )

    def _reject(self, socket: Socket, *, reason: str, message: str, final: bool = True) -> None:
        socket.send(encode_message(Opcode.REJECT, Reject(reason=reason, message=message[:500], final=final)))
        socket.close()

    def _hold(self, admitted: AdmittedNode, socket: Socket) -> None:
        """Carry jobs until either side ends it."""
        node_id, specs = admitted.id, self._named(admitted.id, admitted.specs)
        self._end(node_id, "replaced by a newer link of the same node")
        self._away.join(node_id)
        if not self._table.connect(node_id, specs, now_s=self._clock.now_s()):
            _log.warning("node_turned_away", node=node_id, why="the table is full")
            socket.close()
            return
        self._table.set_owner(node_id, self.owners[node_id])
        self.admission.tally.put(node_id, self.owners[node_id], len(specs.models))
        send_queue = SendQueue(before_sending=self._before_sending)
        link = NodeLink(node_id, send_queue=send_queue, observer=self, clock=self._clock)
        held = self._held[node_id] = LinkedNode(self, link, send_queue, socket, takes_names=admitted.takes_names)
        self.links[node_id] = link
        self.version += 1
        self.changed.add(node_id)
        _log.info("node_joined", node=node_id, name=specs.name, models=len(specs.models))
        self._rename_stale()
        held.start()
        self._tell_names(node_id)
        if not link.is_lost:  # its socket may have ended during the handshake
            self._pinger.add(link)

    def on_lost(self, held: LinkedNode, error: LinkError) -> None:
        """Its socket is gone, or can carry it no longer."""
        node_id, why = held.link.node_id, str(error)
        if isinstance(error, ProtocolViolation):
            _log.warning("link_violated", node=node_id, what=why)
            why = f"it broke the protocol: {why}"
        if self._held.get(node_id) is held:
            self._end(node_id, why)

    def _end(self, node_id: NodeId, why: str) -> None:
        held = self._held.pop(node_id, None)
        if held is None:
            return
        self.links.pop(node_id, None)
        self.version += 1
        self._table.disconnect(node_id, unix_s=self._clock.unix_s())
        self.power.forget(node_id)
        self.servers.pop(node_id, None)
        self.admission.tally.remove(node_id)
        self._specs_waiting.pop(node_id, None)
        self._on_left(node_id)
        self.changed.add(node_id)
        held.stop(why)
        self._bound_away(node_id)
        _log.info("node_left", node=node_id, why=why)

    def drop_silent(self) -> None:
        """Close links without heartbeats: the socket may never report the loss."""
        now_s = self._clock.now_s()
        if now_s < self._silent_from_s:
            return
        rows = [row for node_id in self._held if (row := self._table.get(node_id)) is not None]
        silent, self._silent_from_s = offline_rows(rows, now_s=now_s, rules=self._health)
        for row in silent:
            self._end(row.id, "its heartbeats stopped")

    def drop(self, node_ids: Iterable[NodeId], *, why: str) -> None:
        """End these nodes' links, where there are any."""
        for node_id in node_ids:
            self._end(node_id, why)

    def say_goodbye(self, reason: str) -> None:
        """Announce the stop of this gateway, so that nodes reconnect later without an alarm."""
        for held in self._held.values():
            held.link.say_goodbye(reason)

    async def close(self) -> None:
        """End all links and visits, for a gateway that stops. Messages queued in this tick are still sent."""
        self._is_closed = True
        await asyncio.sleep(0)
        for visit in self._visits:
            visit.cancel()
        sockets = [held.socket for held in self._held.values()]
        for node_id in list(self._held):
            self._end(node_id, "the gateway is stopping")
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * CLOSE_S):  # each cuts itself after half of that
                await asyncio.gather(*(socket.wait_closed() for socket in sockets))

    # nodes that are away

    def remember(
        self,
        node_id: NodeId,
        owner: AccountId,
        specs: NodeSpecs,
        *,
        last_seen_unix_s: float | None,
        has_served: bool = False,
    ) -> None:
        """A node that is known from an earlier run, or from another process."""
        self.owners.setdefault(node_id, owner)
        self._table.remember(
            node_id,
            self.catalog.named(node_id, owner, specs),
            last_seen_unix_s=last_seen_unix_s,
            has_served=has_served,
        )
        if self._table.get(node_id) is None:  # the table is full
            return
        self._table.set_owner(node_id, owner)
        self.names.claim(node_id, owner, specs.name)
        self._rename_stale()
        self._bound_away(node_id)

    def _bound_away(self, node_id: NodeId) -> None:
        """Take the models of those out of the table that have been away the longest, beyond what may be kept."""
        row = self._table.get(node_id)
        if row is None or row.owner is None or row.connected:
            return
        kept = len(row.specs.models)
        for away in self._away.leave(node_id, row.owner, models=kept, has_served=row.has_served):
            self._drop_models(away)
        for away in self._away.take_surplus():
            self._leave_table(away)

    def _drop_models(self, node_id: NodeId) -> None:
        row = self._table.get(node_id)
        if row is not None and not row.connected:
            bare = msgspec.structs.replace(row.specs, models=())
            self._table.set_specs(node_id, self.catalog.named(node_id, row.owner, bare))

    def forgettable(self) -> list[NodeId]:
        """Nodes that never served a job of this process and have been away for a day, or are not in memory."""
        since_unix_s = self._clock.unix_s() - FORGET_AFTER_S
        return [node_id for node_id in self.owners if self._is_forgettable(self._table.get(node_id), since_unix_s)]

    @staticmethod
    def _is_forgettable(row: NodeRow | None, since_unix_s: float) -> bool:
        if row is None:
            return True
        return not row.connected and not row.has_served and (row.last_seen_unix_s or 0.0) < since_unix_s

    def forget(self, node_ids: Iterable[NodeId]) -> None:
        """Remove all that is known of nodes that are away; they may join again as new ones."""
        for node_id in node_ids:
            is_gone = self._leave_table(node_id) or self._table.get(node_id) is None
            if is_gone and self.owners.pop(node_id, None) is not None:
                _log.info("node_forgotten", node=node_id)

    def _leave_table(self, node_id: NodeId) -> bool:
        """Take a node that is away out of memory. It is still registered, and brings everything when it joins again."""
        if not self._table.forget(node_id):
            return False
        self._away.join(node_id)
        self.catalog.forget(node_id)
        self.names.release(node_id)
        self.joined_unix_s.pop(node_id, None)
        self.changed.discard(node_id)
        self._on_forgotten(node_id)
        return True

    # names of nodes and models

    def set_aliases(self, aliases: Mapping[str, str]) -> None:
        """The operator's aliases of models: all nodes are named by them at once."""
        if self.catalog.set_aliases(aliases):
            self._rename([row.id for row in self._table])

    def _named(self, node_id: NodeId, specs: NodeSpecs) -> NodeSpecs:
        name = self.names.claim(node_id, self.owners[node_id], specs.name)
        named = specs if name == specs.name else msgspec.structs.replace(specs, name=name)
        return self.catalog.named(node_id, self.owners[node_id], named)

    def _rename_stale(self) -> None:
        """Models of other nodes whose names follow from what a node has just reported."""
        self._rename(self.catalog.take_stale())

    def _rename(self, node_ids: Iterable[NodeId]) -> None:
        for _ in range(2):  # a name that follows from a digest vouches for no other: the second round is the last
            for row in [row for node_id in node_ids if (row := self._table.get(node_id)) is not None]:
                specs = self.catalog.named(row.id, row.owner, row.specs)
                if specs is not row.specs:
                    self._table.set_specs(row.id, specs)
                    self.changed.add(row.id)
                    self._tell_names(row.id)
            node_ids = self.catalog.take_stale()

    async def tell_price_notices(self) -> None:
        """Tell owners what has become of their prices: what is usual changes with what others ask."""
        for told, node_id in enumerate(list(self._held), 1):
            self._tell_names(node_id)
            if told % TOLD_PER_TICK == 0:
                await asyncio.sleep(0)

    def _tell_names(self, node_id: NodeId) -> None:
        """Tell a node's owner what the network calls its models, and of their prices, when that has changed."""
        held, row = self._held.get(node_id), self._table.get(node_id)
        if held is None or not held.takes_names or row is None:
            return
        models = tuple(self._assigned_name(row, model) for model in row.specs.models[:MODELS_NAMED_MAX])
        if models != held.models_told:
            held.models_told = models
            wanted = tuple(wanted.name for wanted in self._demand.wanted()[:WANTED_MODELS_MAX])
            held.link.send_names(ModelNames(models, wanted))

    def _assigned_name(self, row: NodeRow, model: ModelReport) -> AssignedName:
        why = self.catalog.naming_of(row.owner, model).why
        why = why[:NAME_REASON_CHARS_MAX] if why is not None else None
        return AssignedName(model.id, server_id_of(model), why, self._price_notice(model))

    # what links report

    def on_specs(self, node_id: NodeId, specs: NodeSpecs) -> None:
        """Specs that come too often wait, and only the last of them is written."""
        if node_id not in self._held:
            return
        is_waiting = node_id in self._specs_waiting
        self._specs_waiting[node_id] = specs
        if not is_waiting:
            self._write_waiting_specs(node_id)

    def _write_waiting_specs(self, node_id: NodeId) -> None:
        """Now, or as soon as the node's rate allows it."""
        specs = self._specs_waiting.get(node_id)
        if specs is None:  # it has left
            return
        models, now_s = len(specs.models), self._clock.now_s()
        wait_s = self._rates.wait_for_specs(node_id, self.owners[node_id], models=models, now_s=now_s)
        if wait_s > 0.0:
            self._clock.call_later(wait_s, partial(self._write_waiting_specs, node_id))
            return
        del self._specs_waiting[node_id]
        try:
            self.admission.check_models(node_id, self.owners[node_id], models)
        except JoinRefused as refused:
            self._turn_away(node_id, refused)
        else:
            self._write_specs(node_id, specs)

    def _turn_away(self, node_id: NodeId, refused: JoinRefused) -> None:
        """End the link of a node that reports more than its account may have, and tell it why."""
        held = self._held[node_id]
        held.socket.send(encode_message(Opcode.GOODBYE, Goodbye(reason=refused.message[:500])))
        self._end(node_id, refused.reason)

    def _write_specs(self, node_id: NodeId, specs: NodeSpecs) -> None:
        self._table.set_specs(node_id, self._named(node_id, specs), now_s=self._clock.now_s())
        self.admission.tally.put(node_id, self.owners[node_id], len(specs.models))
        self.changed.add(node_id)
        self._tell_names(node_id)
        self._rename_stale()

    def on_load(self, node_id: NodeId, load: NodeLoad) -> None:
        if load.sensors is not None:
            self.power.note(node_id, load.sensors, unix_s=self._clock.unix_s())
        if load.server is not None:
            self.servers[node_id] = load.server
        self._table.set_load(node_id, self.catalog.with_names(node_id, load), now_s=self._clock.now_s())

    def on_rtt(self, node_id: NodeId, rtt_s: float) -> None:
        self._table.set_rtt(node_id, rtt_s, now_s=self._clock.now_s())

    def on_receipt(self, node_id: NodeId, signed: SignedReceipts) -> None:
        if self._receipts is not None:
            self._receipts.on_receipt(node_id, signed)

    def on_node_key(self, node_id: NodeId, signed: SignedNodeKey) -> None:
        self._on_node_key(node_id, signed)

    def on_lease(self, node_id: NodeId, said: LeaseAct | LeaseReport) -> None:
        self._on_lease(node_id, said)


def countersign(links: Mapping[NodeId, NodeLink], node_id: NodeId, message: Countersignature) -> None:
    """Send a node its countersigned receipts. One that has left sends them again, and is answered then."""
    if (link := links.get(node_id)) is not None:
        link.countersign(message)
