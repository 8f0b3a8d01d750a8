"""The gateway's end of a link: opens jobs on a node, passes replies to their listeners, and grants flow-control credit.

Synchronous callbacks, no tasks: when `receive` returns, each frame has reached the sink of its client. It knows frames,
not sockets; failover and retries are dispatch's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sparewatt.core.clock import Clock
from sparewatt.core.errors import LinkFlooded, ProtocolViolation
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import LINK_CONTROL_BYTES_MAX, LINK_FRAME_BYTES_MAX, LINK_JOBS_MAX
from sparewatt.link.report_meter import REPORTS_PER_S, SPECS_WEIGHT, ReportMeter
from sparewatt.link.send_queue import SendQueue
from sparewatt.protocol.link.frames import (
    FRAME_HEADER_BYTES,
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
    decode_head,
    decode_load,
    decode_message,
    encode_frame,
    encode_job,
    encode_message,
    parse_opcode,
    split_frames,
    unpack_header,
)
from sparewatt.protocol.link.lease_frames import LeaseLookup, LeaseOutcome, MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport, LeaseTask
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from sparewatt.protocol.link.receipts import Countersignature, SignedReceipt, SignedReceipts, SignedSheet

LINK_CREDIT_PARTS = 4
"""Credit is sent when this part of a window has been consumed: a quarter, instead of a frame for every token."""
_STREAM_MAX = (1 << 32) - 1
_RTT_S_MAX = 600.0
_STAMP = struct.Struct(">d")
_DATA, _HEAD, _END, _FAIL = int(Opcode.DATA), int(Opcode.HEAD), int(Opcode.END), int(Opcode.FAIL)
_LOAD, _PONG = int(Opcode.LOAD), int(Opcode.PONG)
_REPORT_WEIGHTS = {
    _LOAD: 1,
    _PONG: 1,
    int(Opcode.SPECS): SPECS_WEIGHT,
    int(Opcode.NODE_KEY): 1,
    int(Opcode.LEASE_ACT): 1,
    int(Opcode.LEASE_REPORT): 1,
}


class StreamListener(Protocol):
    """Receives the reply to one job. After `on_end` or `on_fail` nothing more is called."""

    def on_head(self, head: JobReplyHead) -> None: ...

    def on_data(self, data: bytes) -> None: ...

    def on_end(self, end: JobEnd) -> None: ...

    def on_fail(self, fail: JobFailure) -> None: ...


class LinkObserver(Protocol):
    """Receives what nodes report; the gateway's registry of links implements it."""

    def on_specs(self, node_id: NodeId, specs: NodeSpecs) -> None: ...

    def on_load(self, node_id: NodeId, load: NodeLoad) -> None: ...

    def on_rtt(self, node_id: NodeId, rtt_s: float) -> None: ...

    def on_receipt(self, node_id: NodeId, signed: SignedReceipts) -> None: ...

    def on_node_key(self, node_id: NodeId, signed: SignedNodeKey) -> None: ...

    def on_lease(self, node_id: NodeId, said: LeaseAct | LeaseReport) -> None: ...


@dataclass(slots=True, eq=False)
class JobStream:
    """One job on one link, as the gateway sees it: its number, its window, its credit."""

    _link: NodeLink
    number: int
    window_left_bytes: int
    """What the node may still send, by the credit it has received."""
    listener: StreamListener
    on_data: Callable[[bytes], None] = field(init=False)
    """Called for each DATA frame. The listener may replace it by a shorter path."""
    credit_due_bytes: int = field(init=False, default=0)
    """Consumed by the client, but not yet granted to the node; negative is a debt, paid off first."""
    credit_step_bytes: int = field(init=False)
    """Credit is sent once this much is due. As it is a part of the window, the node cannot stall on less: it still has
    the rest of its window."""
    has_head: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.on_data = self.listener.on_data
        self.credit_step_bytes = self.window_left_bytes // self._link.credit_parts or 1

    def send_credit(self) -> None:
        """Grant all credit that is due, unless the job is over."""
        granted, self.credit_due_bytes = self.credit_due_bytes, 0
        if self._link.has(self):
            self.window_left_bytes += granted
            self._link.send(encode_message(Opcode.CREDIT, Credit(n_bytes=granted), stream=self.number))

    def cancel(self) -> None:
        """Stop the job on the node. Its listener is not called again."""
        if self._link.forget(self):
            self._link.send(encode_frame(Opcode.CANCEL, self.number))


class NodeLink:
    """An authenticated link to one node."""

    def __init__(self, node_id: NodeId, *, send_queue: SendQueue, observer: LinkObserver, clock: Clock) -> None:
        self.node_id = node_id
        self._send_queue = send_queue
        self._observer = observer
        self._clock = clock
        self._streams: dict[int, JobStream] = {}
        self._last_number = 0
        self._reports = ReportMeter(now_s=clock.now_s())
        self.credit_parts = LINK_CREDIT_PARTS
        self.is_lost = False

    def open(self, job: JobRequest, body: bytes, listener: StreamListener) -> JobStream:
        """Send a job. If the link has no room, the listener gets the `refused` that a full node would send."""
        if not self._has_room(body):
            listener.on_fail(JobFailure(code="refused", message="the link to the node is full"))
            return JobStream(self, 0, 0, listener)
        number = self._last_number = self._last_number + 1
        stream = self._streams[number] = JobStream(self, number, job.window_bytes, listener)
        for frames in encode_job(job, body, number):
            self._send_queue.put(frames)
        return stream

    def send(self, frame: bytes) -> None:
        self._send_queue.put(frame)

    def has(self, stream: JobStream) -> bool:
        return self._streams.get(stream.number) is stream

    def forget(self, stream: JobStream) -> bool:
        """False if it had ended already."""
        return self.has(stream) and self._streams.pop(stream.number) is stream

    def _has_room(self, body: bytes) -> bool:
        """False at the number of jobs that a node accepts: one more would make it end the link."""
        has_number = len(self._streams) < LINK_JOBS_MAX and self._last_number < _STREAM_MAX
        return has_number and self._send_queue.has_room(len(body) + LINK_CONTROL_BYTES_MAX)

    def ping(self) -> None:
        self.send(encode_frame(Opcode.PING, 0, _STAMP.pack(self._clock.now_s())))

    def countersign(self, message: Countersignature) -> None:
        self.send(encode_message(Opcode.COUNTERSIGNED, message))

    def send_names(self, names: ModelNames) -> None:
        self.send(encode_message(Opcode.NAMES, names))

    def request_node_key(self, request: NodeKeyRequest) -> None:
        """Only from a node that offers leases: another may not know the frame, and end the link."""
        self.send(encode_message(Opcode.PROVIDER, request))

    def send_market(self, facts: MarketFacts) -> None:
        """This and the next three only to a node whose specs carry a `LeaseOffer`, or that has a lease."""
        self.send(encode_message(Opcode.MARKET, facts))

    def send_lookup(self, lookup: LeaseLookup) -> None:
        self.send(encode_message(Opcode.LOOKUP, lookup))

    def send_outcome(self, outcome: LeaseOutcome) -> None:
        self.send(encode_message(Opcode.OUTCOME, outcome))

    def send_task(self, task: LeaseTask) -> None:
        self.send(encode_message(Opcode.LEASE_TASK, task))

    def request_traffic(self) -> None:
        """Only from a node that has a lease: another may not know the frame, and end the link."""
        self.send(encode_frame(Opcode.LEASE_TRAFFIC))

    def say_goodbye(self, reason: str) -> None:
        self.send(encode_message(Opcode.GOODBYE, Goodbye(reason=reason)))

    def receive(self, message: bytes) -> None:
        """Act on one WebSocket message. Raises ProtocolViolation, after which the link must be closed."""
        if self.is_lost:
            return  # replaced while the message was in flight: a newer link may have the node now
        if len(message) > FRAME_HEADER_BYTES:
            op, number, length = unpack_header(message)
            if op == _DATA and length == len(message) - FRAME_HEADER_BYTES <= LINK_FRAME_BYTES_MAX:
                stream = self._streams.get(number)
                if stream is not None and stream.has_head and stream.window_left_bytes >= length:
                    stream.window_left_bytes -= length  # fast path: nearly every message is one DATA frame
                    stream.on_data(message[FRAME_HEADER_BYTES:])
                    return
        self._receive_frames(split_frames(message))

    def _receive_frames(self, frames: list[tuple[int, int, bytes]]) -> None:
        """Adjacent DATA frames of one job are joined, so that its listener is called once."""
        at, n_frames = 0, len(frames)
        while at < n_frames:
            op, number, payload = frames[at]
            at += 1
            if op == _DATA and (stream := self._streams.get(number)) is not None:
                first = at
                while at < n_frames and frames[at][0] == _DATA and frames[at][1] == number:
                    at += 1
                if at > first:
                    payload = b"".join([payload, *[each[2] for each in frames[first:at]]])
                length = len(payload)
                if length > stream.window_left_bytes or not stream.has_head:
                    raise ProtocolViolation("DATA came before HEAD or beyond the window")
                stream.window_left_bytes -= length
                stream.on_data(payload)
            elif number:
                self._receive_job_frame(op, number, payload)
            else:
                self._receive_link_frame(op, payload)

    def on_lost(self, why: str) -> None:
        """The socket is gone: every open job fails at once, so that another node can take over."""
        self.is_lost = True
        streams = list(self._streams.values())
        self._streams.clear()  # not replaced: `_receive_frames` may be in the middle of a message
        for stream in streams:
            stream.listener.on_fail(JobFailure(code="link_lost", message=why))

    def _receive_link_frame(self, op: int, payload: bytes) -> None:
        if op in _REPORT_WEIGHTS and not self._reports.allows(_REPORT_WEIGHTS[op], now_s=self._clock.now_s()):
            raise LinkFlooded(f"it sent more than {REPORTS_PER_S:.0f} reports a second")
        if op == _LOAD:
            self._observer.on_load(self.node_id, decode_load(payload))
        elif op == _PONG:
            self._receive_pong(payload)
        else:
            self._receive_rare_frame(parse_opcode(op), payload)

    def _receive_rare_frame(self, op: Opcode, payload: bytes) -> None:
        match op:
            case Opcode.SPECS:
                self._observer.on_specs(self.node_id, decode_message(payload, NodeSpecs))
            case Opcode.RECEIPT:
                self._observer.on_receipt(self.node_id, decode_message(payload, SignedReceipt))
            case Opcode.SHEET:
                self._observer.on_receipt(self.node_id, decode_message(payload, SignedSheet))
            case Opcode.NODE_KEY:
                self._observer.on_node_key(self.node_id, decode_message(payload, SignedNodeKey))
            case Opcode.LEASE_ACT:
                self._observer.on_lease(self.node_id, decode_message(payload, LeaseAct))
            case Opcode.LEASE_REPORT:
                self._observer.on_lease(self.node_id, decode_message(payload, LeaseReport))
            case Opcode.GOODBYE:
                decode_message(payload, Goodbye)  # nothing to do: the socket closes next
            case _:
                raise ProtocolViolation(f"{op.name} does not belong on stream 0")

    def _receive_pong(self, payload: bytes) -> None:
        if len(payload) != _STAMP.size:
            raise ProtocolViolation("a PONG returns the PING's 8 bytes")
        rtt_s = self._clock.now_s() - float(_STAMP.unpack(payload)[0])
        if 0 <= rtt_s <= _RTT_S_MAX:  # otherwise the node invented the time stamp
            self._observer.on_rtt(self.node_id, rtt_s)

    def _receive_job_frame(self, op: int, number: int, payload: bytes) -> None:
        if number > self._last_number:
            raise ProtocolViolation(f"stream {number} was never opened")
        stream = self._streams.get(number)
        if stream is None:
            parse_opcode(op)  # the job was cancelled while the frame was in flight
        elif op == _HEAD:
            self._receive_head(stream, payload)
        elif op == _END:
            self._receive_end(stream, payload)
        elif op == _FAIL:
            self._receive_fail(stream, payload)
        else:
            raise ProtocolViolation(f"{parse_opcode(op).name} does not belong to a job")

    def _receive_head(self, stream: JobStream, payload: bytes) -> None:
        if stream.has_head:
            raise ProtocolViolation("a job has one HEAD")
        stream.has_head = True
        stream.listener.on_head(decode_head(payload))

    def _receive_end(self, stream: JobStream, payload: bytes) -> None:
        end = decode_message(payload, JobEnd)
        if not stream.has_head:
            raise ProtocolViolation("END came before HEAD")
        self._observer.on_load(self.node_id, end.load)
        self.forget(stream)
        stream.listener.on_end(end)

    def _receive_fail(self, stream: JobStream, payload: bytes) -> None:
        fail = decode_message(payload, JobFailure)
        if fail.load is not None:
            self._observer.on_load(self.node_id, fail.load)
        self.forget(stream)
        stream.listener.on_fail(fail)
