"""One accepted link, for as long as it lasts: reports on every beat, after news, and when models change; then goodbye.

A node has one of these for each process of its gateway. They share everything but the link itself.
"""

from __future__ import annotations

import asyncio
import math

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import LinkError, LinkLost, ProtocolViolation
from sparewatt.core.limits import LOAD_REPORT_INTERVAL_S
from sparewatt.link.node_end import GatewayLink
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import Socket
from sparewatt.node.hardware.sensor_sampler import SensorSampler
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.frames import Welcome
from sparewatt.protocol.link.node_report import NodeLoad

SILENCE_BEATS = 3
LATE_PING_BEATS = 1.25
"""A ping that is this late is not waited for any longer."""


class AwaitableLink:
    """A link on its socket, to be waited for. Implements SocketUser."""

    def __init__(self, link: GatewayLink, outbox: SendQueue) -> None:
        self._send_queue = outbox
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.receive = link.receive
        self.resume = outbox.resume

    async def run(self, socket: Socket) -> None:
        """Until its end. Raises LinkLost or ProtocolViolation, unless it was ours."""
        self._send_queue.attach(socket, on_stuck=self.on_lost)
        socket.attach(self)
        await self._ended

    def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def on_lost(self, error: LinkError) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)


class JoinedLink:
    def __init__(
        self,
        name: str,
        *,
        inventory: Inventory,
        jobs: NodeJobRunner,
        receipts: ReceiptIssuer,
        sensing: SensorSampler | None,
        stopping: asyncio.Event,
        clock: Clock,
    ) -> None:
        self.name = name
        self._inventory = inventory
        self._jobs = jobs
        self._receipts = receipts
        self._sensing = sensing
        self._stopping = stopping
        self._clock = clock
        self._send_queue = SendQueue()
        self._heartbeat_s = math.inf
        self._full_load_at_s = -math.inf
        self._link = GatewayLink(
            send_queue=self._send_queue,
            runner=jobs,
            clock=clock,
            on_countersigned=receipts.on_countersigned,
            on_ping=self._on_ping,
            name=name,
        )

    async def serve(self, socket: Socket, welcome: Welcome) -> None:
        """Until goodbye is said. Raises LinkLost, with the gateway's own reason where it gave one."""
        link, carried = self._link, AwaitableLink(self._link, self._send_queue)
        self._receipts.on_link(link.send_receipt, in_sheets=welcome.takes_sheets)
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._send_heartbeats(welcome.heartbeat_s)),
                    tasks.create_task(self._report_load_changes()),
                    tasks.create_task(self._report_specs_changes()),
                    tasks.create_task(self._leave(carried)),
                ]
                await carried.run(socket)  # returns once goodbye is said
                for task in background:
                    task.cancel()
        except* (LinkLost, ProtocolViolation) as group:
            raise LinkLost(link.goodbye_reason or str(group.exceptions[0])) from None
        finally:
            self._send_queue.drop()
            self._receipts.on_link(None)
            link.on_lost()

    def report_load(self) -> None:
        self._link.send_load(self._load())

    def _load(self) -> NodeLoad:
        return self._jobs.load(self.name)

    async def _send_heartbeats(self, heartbeat_s: float) -> None:
        """Report at first, then when no ping has called for it in time; give up on a gateway that has gone silent."""
        self._heartbeat_s = heartbeat_s
        self._send_full_load()
        while True:
            await asyncio.sleep(heartbeat_s / 2)
            now_s = self._clock.now_s()
            if now_s - self._link.last_heard_s > SILENCE_BEATS * heartbeat_s + 1:
                raise LinkLost("the gateway has gone silent")
            if now_s - self._full_load_at_s >= LATE_PING_BEATS * heartbeat_s:
                self._send_full_load()

    def _on_ping(self) -> None:
        """A gateway pings on every beat: the report goes with the answer, one message for it to read instead of two."""
        if self._clock.now_s() - self._full_load_at_s >= self._heartbeat_s / 2:
            self._send_full_load()

    def _send_full_load(self) -> None:
        self._full_load_at_s = self._clock.now_s()
        self._link.send_load(self._full_load())

    def _full_load(self) -> NodeLoad:
        """What the sensors saw and the server counts goes with heartbeats only: other reports are a third as long.

        What sensors report was measured since the report before, on whichever link: over all links it adds up.
        """
        sensors = self._sensing.report() if self._sensing is not None else None
        return msgspec.structs.replace(self._load(), sensors=sensors, server=self._inventory.server_figures)

    async def _report_load_changes(self) -> None:
        """Between heartbeats: work that did not come by this link, as soon as it is seen."""
        told, count = self._load(), self._inventory.load_version
        while True:
            count = await self._inventory.wait_load_changed(count)
            load = self._load()
            if load.is_news_after(told):
                self._link.send_load(load)
                told = load
            await asyncio.sleep(LOAD_REPORT_INTERVAL_S)

    async def _report_specs_changes(self) -> None:
        """Models come, go and get measured while the link is up. The first report may be newer than the handshake's."""
        while True:
            self._link.send_specs(self._inventory.specs)
            await self._inventory.wait_specs_changed()

    async def _leave(self, carried: AwaitableLink) -> None:
        """Also a link that came up while the node was already stopping."""
        await self._stopping.wait()
        self._receipts.sign_pending()
        self._link.say_goodbye("the node is stopping", on_sent=carried.end)
