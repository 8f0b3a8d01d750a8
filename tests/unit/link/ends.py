"""Both ends of a link for tests: listeners at the gateway, a job runner at the node, and what connects them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sparewatt.core.errors import LinkError
from sparewatt.core.ids import NodeId
from sparewatt.inference.dispatch.attempt import LINK_STREAM_WINDOW_BYTES
from sparewatt.link.gateway_end import JobStream, NodeLink
from sparewatt.link.node_end import GatewayLink, IncomingJob
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.frames import (
    JobEnd,
    JobFailure,
    JobReplyHead,
    JobRequest,
    LinkFrame,
    Opcode,
    SignedNodeKey,
    decode_frames,
)
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from sparewatt.protocol.link.receipts import SignedReceipts
from sparewatt.testing.clocks import ManualClock
from tests.waiting import until

NODE_ID = NodeId("0x" + "ab" * 20)


def job_of(body: bytes, *, window_bytes: int = LINK_STREAM_WINDOW_BYTES) -> JobRequest:
    return JobRequest(
        path="/v1/chat/completions", model="llama", body_bytes=len(body), stream=True, window_bytes=window_bytes
    )


class Listener:
    """Implements StreamListener; records every call."""

    def __init__(self) -> None:
        self.heads: list[JobReplyHead] = []
        self.pieces: list[bytes] = []
        self.ends: list[JobEnd] = []
        self.fails: list[JobFailure] = []

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def over(self) -> bool:
        return bool(self.ends or self.fails)

    def on_head(self, head: JobReplyHead) -> None:
        self.heads.append(head)

    def on_data(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_end(self, end: JobEnd) -> None:
        self.ends.append(end)

    def on_fail(self, fail: JobFailure) -> None:
        self.fails.append(fail)


def grant(stream: JobStream, n_bytes: int) -> None:
    """The client has consumed `n_bytes`: credit for the node, as dispatch gives it."""
    stream.credit_due_bytes += n_bytes
    if stream.credit_due_bytes >= stream.credit_step_bytes:
        stream.send_credit()


class Taker(Listener):
    """A listener whose client consumes everything at once."""

    stream: JobStream | None = None

    def on_data(self, data: bytes) -> None:
        super().on_data(data)
        if self.stream is not None:
            grant(self.stream, len(data))


class Observer:
    """Implements LinkObserver; records every call."""

    def __init__(self) -> None:
        self.specs: list[NodeSpecs] = []
        self.loads: list[NodeLoad] = []
        self.rtts_s: list[float] = []
        self.receipts: list[SignedReceipts] = []
        self.node_keys: list[SignedNodeKey] = []
        self.lease_words: list[LeaseAct | LeaseReport] = []

    def on_specs(self, node_id: NodeId, specs: NodeSpecs) -> None:
        self.specs.append(specs)

    def on_load(self, node_id: NodeId, load: NodeLoad) -> None:
        self.loads.append(load)

    def on_rtt(self, node_id: NodeId, rtt_s: float) -> None:
        self.rtts_s.append(rtt_s)

    def on_receipt(self, node_id: NodeId, signed: SignedReceipts) -> None:
        self.receipts.append(signed)

    def on_node_key(self, node_id: NodeId, signed: SignedNodeKey) -> None:
        self.node_keys.append(signed)

    def on_lease(self, node_id: NodeId, said: LeaseAct | LeaseReport) -> None:
        self.lease_words.append(said)


class Runner:
    """Implements JobRunner: does `work` for each job, and records which ones were started and cancelled."""

    def __init__(self, work: Callable[[IncomingJob], Awaitable[None]] | None = None) -> None:
        self._work = work
        self._tasks: dict[IncomingJob, asyncio.Future[None]] = {}
        self.started: list[IncomingJob] = []
        self.cancelled: list[IncomingJob] = []

    def start(self, job: IncomingJob) -> None:
        self.started.append(job)
        if self._work is not None:
            self._tasks[job] = asyncio.ensure_future(self._work(job))

    def cancel(self, job: IncomingJob) -> None:
        self.cancelled.append(job)
        if job in self._tasks:
            self._tasks[job].cancel()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def echo(job: IncomingJob) -> None:
    """Answer with the request's own body."""
    job.send_head(JobReplyHead(status=200))
    await job.send_data(bytes(job.body))
    job.end(JobEnd(load=NodeLoad()))


@dataclass(slots=True)
class Ends:
    """Two ends that are connected."""

    gateway: NodeLink
    node: GatewayLink
    runner: Runner
    observer: Observer
    clock: ManualClock
    broke: list[Exception] = field(default_factory=list)

    def open(self, body: bytes = b"{}", *, window_bytes: int = LINK_STREAM_WINDOW_BYTES) -> tuple[JobStream, Listener]:
        listener = Listener()
        return self.gateway.open(job_of(body, window_bytes=window_bytes), body, listener), listener

    async def ask(self, body: bytes) -> Listener:
        """One job to its end; its client consumes everything at once."""
        taker = Taker()
        taker.stream = self.gateway.open(job_of(body), body, taker)
        await until(lambda: taker.over)
        return taker


class Carrier:
    """Implements SocketListener: one end's link on its socket."""

    def __init__(self, receive: Callable[[bytes], None], queue: SendQueue, broke: list[Exception]) -> None:
        self.receive = receive
        self.resume = queue.resume
        self._queue = queue
        self._broke = broke

    def start(self, socket: Socket) -> None:
        self._queue.attach(socket, on_stuck=self.on_lost)
        socket.attach(self)

    def on_lost(self, error: LinkError) -> None:
        self._queue.drop()
        self._broke.append(error)


@asynccontextmanager
async def connected(
    node_socket: Socket, gateway_socket: Socket, *, work: Callable[[IncomingJob], Awaitable[None]] | None = echo
) -> AsyncIterator[Ends]:
    clock, runner, observer = ManualClock(), Runner(work), Observer()
    node_queue, gateway_queue = SendQueue(), SendQueue()
    ends = Ends(
        gateway=NodeLink(NODE_ID, send_queue=gateway_queue, observer=observer, clock=clock),
        node=GatewayLink(send_queue=node_queue, runner=runner, clock=clock),
        runner=runner,
        observer=observer,
        clock=clock,
    )
    Carrier(ends.node.receive, node_queue, ends.broke).start(node_socket)
    Carrier(ends.gateway.receive, gateway_queue, ends.broke).start(gateway_socket)
    try:
        yield ends
    finally:
        node_queue.drop()
        gateway_queue.drop()
        await runner.close()


class Wire:
    """One end alone: what it sends can be read frame by frame."""

    def __init__(self, queue: SendQueue) -> None:
        self._queue = queue

    def frames(self) -> list[LinkFrame]:
        """What the end has sent since the last look, without a socket."""
        frames: list[LinkFrame] = []
        while message := self._queue._next_message():
            frames += decode_frames(message)
        return frames

    def ops(self) -> list[Opcode]:
        return [frame.op for frame in self.frames()]


def lone_gateway() -> tuple[NodeLink, Wire, Observer, ManualClock]:
    queue, observer, clock = SendQueue(), Observer(), ManualClock()
    return NodeLink(NODE_ID, send_queue=queue, observer=observer, clock=clock), Wire(queue), observer, clock


def lone_node(
    work: Callable[[IncomingJob], Awaitable[None]] | None = None,
) -> tuple[GatewayLink, Wire, Runner, ManualClock]:
    queue, runner, clock = SendQueue(), Runner(work), ManualClock()
    return GatewayLink(send_queue=queue, runner=runner, clock=clock), Wire(queue), runner, clock
