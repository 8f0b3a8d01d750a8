"""One accepted link, for as long as it lasts: heartbeats, load and specs reports, then goodbye.

A node has one for each process of its gateway. They share everything but the link itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import LinkError, LinkLost, ProtocolViolation
from sparewatt.core.limits import LOAD_REPORT_INTERVAL_S
from sparewatt.link.node_end import GatewayLink, MarketListener, refuse_node_key
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import Socket
from sparewatt.node.hardware.sensor_sampler import SensorSampler
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.frames import ModelNames, NodeKeyRequest, SignedNodeKey, Welcome
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport
from sparewatt.protocol.link.node_report import NodeLoad

SILENCE_BEATS = 3
"""Without a frame for so many heartbeats the gateway counts as gone."""
LATE_PING_BEATS = 1.25
"""If a ping is this late, the load is reported without it."""


@dataclass(slots=True, kw_only=True, eq=False)
class JoinedLink:
    """Implements SocketListener."""

    name: str
    inventory: Inventory
    jobs: NodeJobRunner
    receipts: ReceiptIssuer
    sampler: SensorSampler | None
    stopping: asyncio.Event
    clock: Clock
    on_names: Callable[[ModelNames], None] = lambda _: None
    sign_node_key: Callable[[NodeKeyRequest], SignedNodeKey] = refuse_node_key
    market: MarketListener | None = None
    serve_traffic: Callable[[], Awaitable[None]] | None = None
    """Dials the traffic socket of this link's process, and serves it until it is gone. None: no leases run here."""
    receive: Callable[[bytes], None] = field(init=False)
    resume: Callable[[], None] = field(init=False)
    _link: GatewayLink = field(init=False)
    _send_queue: SendQueue = field(init=False, default_factory=SendQueue)
    _ended: asyncio.Future[None] = field(init=False, default_factory=lambda: asyncio.get_running_loop().create_future())
    _heartbeat_s: float = field(init=False, default=math.inf)
    _full_load_at_s: float = field(init=False, default=-math.inf)
    _traffic_wanted: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._link = GatewayLink(
            send_queue=self._send_queue,
            runner=self.jobs,
            clock=self.clock,
            on_countersigned=self.receipts.on_countersigned,
            on_names=self.on_names,
            sign_node_key=self.sign_node_key,
            market=self.market,
            on_traffic=self._traffic_wanted.set,
            on_ping=self._on_ping,
            name=self.name,
        )
        self.receive, self.resume = self._link.receive, self._send_queue.resume

    async def serve(self, socket: Socket, welcome: Welcome) -> None:
        """Until goodbye is sent. Raises LinkLost, with the gateway's own reason if it gave one."""
        link = self._link
        self.receipts.on_link(link.send_receipt, in_sheets=welcome.takes_sheets)
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._send_heartbeats(welcome.heartbeat_s)),
                    tasks.create_task(self._report_load_changes()),
                    tasks.create_task(self._report_specs_changes()),
                    tasks.create_task(self._leave()),
                    tasks.create_task(self._keep_traffic()),
                ]
                self._send_queue.attach(socket, on_stuck=self.on_lost)
                socket.attach(self)
                await self._ended
                for task in background:
                    task.cancel()
        except* (LinkLost, ProtocolViolation) as group:
            raise LinkLost(link.goodbye_reason or str(group.exceptions[0])) from None
        finally:
            self._send_queue.drop()
            self.receipts.on_link(None)
            link.on_lost()

    def on_lost(self, error: LinkError) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    def say_lease(self, said: LeaseAct | LeaseReport) -> None:
        self._link.send_lease(said)

    def report_load(self) -> None:
        self._link.send_load(self._load())

    def _load(self) -> NodeLoad:
        return self.jobs.load(self.name)

    async def _send_heartbeats(self, heartbeat_s: float) -> None:
        """Report the load at first, then whenever no ping was in time; end the link when the gateway is silent."""
        self._heartbeat_s = heartbeat_s
        self._send_full_load()
        while True:
            await asyncio.sleep(heartbeat_s / 2)
            now_s = self.clock.now_s()
            if now_s - self._link.last_heard_s > SILENCE_BEATS * heartbeat_s + 1:
                raise LinkLost("the gateway has gone silent")
            if now_s - self._full_load_at_s >= LATE_PING_BEATS * heartbeat_s:
                self._send_full_load()

    def _on_ping(self) -> None:
        """A gateway pings at every heartbeat: the report leaves with the PONG, in one message instead of two."""
        if self.clock.now_s() - self._full_load_at_s >= self._heartbeat_s / 2:
            self._send_full_load()

    def _send_full_load(self) -> None:
        """With sensors and server metrics, at heartbeats only: they triple the length of a report.

        Sensors report what was sampled since the last report on any link, so over all links it adds up.
        """
        self._full_load_at_s = self.clock.now_s()
        sensors = self.sampler.report() if self.sampler is not None else None
        self._link.send_load(
            msgspec.structs.replace(self._load(), sensors=sensors, server=self.inventory.server_metrics)
        )

    async def _report_load_changes(self) -> None:
        """Between heartbeats: report work that did not come over this link, as soon as it is seen."""
        reported, version = self._load(), self.inventory.load_version
        while True:
            version = await self.inventory.wait_load_changed(version)
            load = self._load()
            if load.is_news_after(reported):
                self._link.send_load(load)
                reported = load
            await asyncio.sleep(LOAD_REPORT_INTERVAL_S)

    async def _report_specs_changes(self) -> None:
        """The first report may already be newer than the handshake's."""
        while True:
            self._link.send_specs(self.inventory.specs)
            await self.inventory.wait_specs_changed()

    async def _keep_traffic(self) -> None:
        """Dial whenever the gateway asks: it does so only if it has no traffic socket, so an older one is dead."""
        serving: asyncio.Task[None] | None = None
        try:
            while True:
                await self._traffic_wanted.wait()
                self._traffic_wanted.clear()
                if serving is not None:
                    serving.cancel()
                if self.serve_traffic is not None:
                    serving = asyncio.ensure_future(self.serve_traffic())
        finally:
            if serving is not None:
                serving.cancel()
                await asyncio.wait([serving])

    async def _leave(self) -> None:
        """Say goodbye when the node stops, also on a link that came up after that."""
        await self.stopping.wait()
        self.receipts.sign_pending()
        self._link.say_goodbye("the node is stopping", on_sent=self._end)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
