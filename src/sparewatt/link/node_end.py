"""The node's end of a link: collects a job's body, starts the job, and sends its reply within its flow-control credit.

It knows frames, not sockets; running a job is up to the `JobRunner`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sparewatt.core.clock import Clock
from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import LINK_JOBS_MAX
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import LINK_BATCH_BYTES
from sparewatt.protocol.link.frames import (
    Credit,
    Goodbye,
    JobEnd,
    JobFailure,
    JobReplyHead,
    JobRequest,
    ModelNames,
    NodeKeyRequest,
    Opcode,
    SignedNodeKey,
    decode_message,
    encode_frame,
    encode_message,
    parse_opcode,
    split_frames,
)
from sparewatt.protocol.link.lease_frames import LeaseLookup, LeaseOutcome, MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport, LeaseTask
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from sparewatt.protocol.link.receipts import Countersignature, SignedReceipts, SignedSheet

_MARKET_MESSAGES: dict[Opcode, type[MarketFacts | LeaseLookup | LeaseOutcome | LeaseTask]] = {
    Opcode.MARKET: MarketFacts,
    Opcode.LOOKUP: LeaseLookup,
    Opcode.OUTCOME: LeaseOutcome,
    Opcode.LEASE_TASK: LeaseTask,
}


def refuse_node_key(request: NodeKeyRequest) -> SignedNodeKey:
    return SignedNodeKey(request, refusal="this node offers no leases")


class MarketListener(Protocol):
    """Receives what a gateway says about the market of leases. Must not block."""

    def on_market(self, facts: MarketFacts) -> None: ...

    def on_lookup(self, lookup: LeaseLookup) -> None: ...

    def on_outcome(self, outcome: LeaseOutcome) -> None: ...

    def on_task(self, task: LeaseTask) -> None: ...


class JobRunner(Protocol):
    """Runs jobs; the node agent implements it."""

    def start(self, job: IncomingJob) -> None: ...

    def cancel(self, job: IncomingJob) -> None: ...


@dataclass(slots=True, eq=False)
class IncomingJob:
    """One job on the node, from OPEN to END or FAIL."""

    _link: GatewayLink
    number: int
    meta: JobRequest
    body: bytearray = field(init=False, default_factory=bytearray)
    _credit: int = field(init=False)
    _more_credit: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._credit = self.meta.window_bytes

    @property
    def origin(self) -> str:
        """The name of the link that delivered it."""
        return self._link.name

    def add_credit(self, n_bytes: int) -> None:
        self._credit += n_bytes
        self._more_credit.set()

    def send_head(self, head: JobReplyHead) -> None:
        self._link.send(encode_message(Opcode.HEAD, head, stream=self.number))

    async def send_data(self, data: bytes) -> None:
        """Send at once; wait only without credit, when the gateway's client does not keep up (back-pressure)."""
        at = 0
        while at < len(data):
            while self._credit <= 0:
                self._more_credit.clear()
                await self._more_credit.wait()
            piece = data[at : at + min(self._credit, LINK_BATCH_BYTES)]
            self._credit -= len(piece)
            at += len(piece)
            self._link.send(encode_frame(Opcode.DATA, self.number, piece))

    def end(self, end: JobEnd) -> None:
        if self._link.close_job(self):
            self._link.send(encode_message(Opcode.END, end, stream=self.number))

    def fail(self, fail: JobFailure) -> None:
        if self._link.close_job(self):
            self._link.send(encode_message(Opcode.FAIL, fail, stream=self.number))


@dataclass(slots=True, kw_only=True, eq=False)
class GatewayLink:
    """An accepted link to one gateway process; `name` distinguishes it from links to the other processes."""

    send_queue: SendQueue
    runner: JobRunner
    clock: Clock
    on_countersigned: Callable[[Countersignature], None] = lambda _: None
    on_names: Callable[[ModelNames], None] = lambda _: None
    sign_node_key: Callable[[NodeKeyRequest], SignedNodeKey] = refuse_node_key
    market: MarketListener | None = None
    """None: what comes is checked and dropped."""
    on_traffic: Callable[[], None] = lambda: None
    """The gateway wants a traffic socket for streams of leases."""
    on_ping: Callable[[], None] = lambda: None
    """Called after the PONG is queued: frames sent by it leave in the same message."""
    name: str = ""
    last_heard_s: float = field(init=False)
    goodbye_reason: str | None = field(init=False, default=None)
    _jobs: dict[int, IncomingJob] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.last_heard_s = self.clock.now_s()

    def send(self, frame: bytes) -> None:
        self.send_queue.put(frame)

    def send_specs(self, specs: NodeSpecs) -> None:
        self.send(encode_message(Opcode.SPECS, specs))

    def send_load(self, load: NodeLoad) -> None:
        self.send(encode_message(Opcode.LOAD, load))

    def send_receipt(self, signed: SignedReceipts) -> None:
        self.send(encode_message(Opcode.SHEET if isinstance(signed, SignedSheet) else Opcode.RECEIPT, signed))

    def send_lease(self, said: LeaseAct | LeaseReport) -> None:
        op = Opcode.LEASE_ACT if isinstance(said, LeaseAct) else Opcode.LEASE_REPORT
        self.send(encode_message(op, said))

    def say_goodbye(self, reason: str, *, on_sent: Callable[[], None] = lambda: None) -> None:
        """Send no more frames after this one. `on_sent` is called when the queue is empty."""
        self.send(encode_message(Opcode.GOODBYE, Goodbye(reason=reason)))
        self.send_queue.finish(on_sent)

    def close_job(self, job: IncomingJob) -> bool:
        """False if it had ended already."""
        return self._jobs.get(job.number) is job and self._jobs.pop(job.number) is job

    def receive(self, message: bytes) -> None:
        """Act on one WebSocket message. Raises ProtocolViolation, after which the link must be closed."""
        self.last_heard_s = self.clock.now_s()
        for op, number, payload in split_frames(message):
            self._receive_frame(parse_opcode(op), number, payload)

    def on_lost(self) -> None:
        """The gateway is gone: cancel all of its jobs."""
        jobs, self._jobs = list(self._jobs.values()), {}
        for job in jobs:
            self.runner.cancel(job)

    def _receive_frame(self, op: Opcode, number: int, payload: bytes) -> None:
        match op:
            case Opcode.BODY | Opcode.CREDIT | Opcode.CANCEL:
                self._receive_job_frame(op, number, payload)
            case Opcode.OPEN:
                self._open(number, payload)
            case Opcode.PING:
                self.send(encode_frame(Opcode.PONG, 0, payload))
                self.on_ping()
            case Opcode.GOODBYE:
                self.goodbye_reason = decode_message(payload, Goodbye).reason
            case Opcode.COUNTERSIGNED:
                self.on_countersigned(decode_message(payload, Countersignature))
            case Opcode.NAMES:
                self.on_names(decode_message(payload, ModelNames))
            case Opcode.PROVIDER:
                signed = self.sign_node_key(decode_message(payload, NodeKeyRequest))
                self.send(encode_message(Opcode.NODE_KEY, signed))
            case Opcode.MARKET | Opcode.LOOKUP | Opcode.OUTCOME | Opcode.LEASE_TASK:
                self._receive_market_frame(op, payload)
            case Opcode.LEASE_TRAFFIC:
                self.on_traffic()
            case _:
                raise ProtocolViolation(f"a gateway does not send {op.name}")

    def _receive_market_frame(self, op: Opcode, payload: bytes) -> None:
        message = decode_message(payload, _MARKET_MESSAGES[op])
        match message:
            case _ if self.market is None:
                pass
            case MarketFacts():
                self.market.on_market(message)
            case LeaseLookup():
                self.market.on_lookup(message)
            case LeaseOutcome():
                self.market.on_outcome(message)
            case LeaseTask():
                self.market.on_task(message)

    def _open(self, number: int, payload: bytes) -> None:
        if number == 0 or number in self._jobs or len(self._jobs) >= LINK_JOBS_MAX:
            raise ProtocolViolation("OPEN on a stream that is taken, or too many jobs")
        job = IncomingJob(self, number, decode_message(payload, JobRequest))
        self._jobs[number] = job
        if job.meta.body_bytes == 0:
            self.runner.start(job)

    def _receive_job_frame(self, op: Opcode, number: int, payload: bytes) -> None:
        job = self._jobs.get(number)
        if job is None:
            return  # it ended while the frame was in flight
        match op:
            case Opcode.BODY:
                self._add_body(job, payload)
            case Opcode.CREDIT:
                job.add_credit(decode_message(payload, Credit).n_bytes)
            case _:
                self.close_job(job)
                self.runner.cancel(job)

    def _add_body(self, job: IncomingJob, payload: bytes) -> None:
        job.body += payload
        if not payload or len(job.body) > job.meta.body_bytes:
            raise ProtocolViolation("a body is longer than announced, or comes in empty pieces")
        if len(job.body) == job.meta.body_bytes:
            self.runner.start(job)
