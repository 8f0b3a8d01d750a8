"""A gateway's dispatch with real links, and nodes that do what the test says, frame by frame."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import NodeId
from sparewatt.inference.dispatch.attempt import LINK_STREAM_WINDOW_BYTES
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import DirectPath, DispatchRules, Outcome, WriteBatch
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.matcher.formula import BALANCED, Ranking
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link.gateway_end import NodeLink
from sparewatt.link.send_queue import SendQueue
from sparewatt.protocol.link.frames import (
    Credit,
    FailCode,
    JobEnd,
    JobFailure,
    JobReplyHead,
    JobRequest,
    LinkFrame,
    Opcode,
    SignedNodeKey,
    decode_frames,
    decode_message,
    encode_frame,
    encode_message,
)
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from sparewatt.protocol.link.receipts import SignedReceipts
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.nodes import MODEL, NOW_S, a_dispatched_job, a_job, a_table, node_id

BODY = b'{"model":"llama-3-8b","messages":[{"role":"user","content":"Hi"}]}'
COMPLETION = (
    b'{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello",'
    b'"refusal":null},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}'
)
DONE = b"data: [DONE]\n\n"
KV_TOKEN_BYTES = 100_000


def event(delta: Mapping[str, object], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + msgspec.json.encode({"id": "c1", "choices": [choice]}) + b"\n\n"


def text_event(text: str) -> bytes:
    return event({"content": text})


ROLE = event({"role": "assistant", "content": ""})
FINISH = event({}, finish="stop")
USAGE = b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}\n\n'


class RecordingOutbox(SendQueue):
    """Sends nothing; remembers the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytes] = []
        self.on_put: Callable[[bytes], None] = lambda _: None

    def put(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.on_put(frame)


class Nobody:
    """Implements LinkObserver."""

    def on_specs(self, node_id: NodeId, specs: NodeSpecs) -> None: ...

    def on_load(self, node_id: NodeId, load: NodeLoad) -> None: ...

    def on_rtt(self, node_id: NodeId, rtt_s: float) -> None: ...

    def on_receipt(self, node_id: NodeId, signed: SignedReceipts) -> None: ...

    def on_node_key(self, node_id: NodeId, signed: SignedNodeKey) -> None: ...

    def on_lease(self, node_id: NodeId, said: LeaseAct | LeaseReport) -> None: ...


class ScriptedNode:
    """A node at the far end of a real NodeLink. Speaks about its latest job unless told otherwise."""

    def __init__(self, number: int, clock: ManualClock, table: NodeTable) -> None:
        self.id = node_id(number)
        self._clock = clock
        self._table = table
        self._outbox = RecordingOutbox()
        self.link = NodeLink(self.id, send_queue=self._outbox, observer=Nobody(), clock=clock)
        self.link.credit_parts = LINK_STREAM_WINDOW_BYTES  # every byte of credit is told at once, to be counted
        self._sent: Counter[int] = Counter()

    def answer_when_asked(self, *pieces: bytes, status: int = 200) -> None:
        """Answer the next job as soon as its body is here and the gateway's turn is over."""

        def heard(frame: bytes) -> None:
            if any(each.op is Opcode.BODY for each in decode_frames(frame)):
                asyncio.get_running_loop().call_soon(lambda: self.answer(*pieces, status=status))

        self._outbox.on_put = heard

    @property
    def opened(self) -> list[JobRequest]:
        return [decode_message(payload, JobRequest) for op, _, payload in self._heard() if op is Opcode.OPEN]

    @property
    def body(self) -> bytes:
        return b"".join(payload for op, _, payload in self._heard() if op is Opcode.BODY)

    @property
    def latest_body(self) -> bytes:
        """Of the latest job alone."""
        return b"".join(
            payload for op, stream, payload in self._heard() if op is Opcode.BODY and stream == self._stream
        )

    @property
    def credit_bytes(self) -> int:
        latest = self._stream
        grants = [payload for op, stream, payload in self._heard() if op is Opcode.CREDIT and stream == latest]
        return sum(decode_message(payload, Credit).n_bytes for payload in grants)

    @property
    def sent_bytes(self) -> int:
        return self._sent[self._stream]

    @property
    def cancelled(self) -> list[int]:
        return [stream for op, stream, _ in self._heard() if op is Opcode.CANCEL]

    @property
    def may_send_bytes(self) -> int:
        return self.opened[-1].window_bytes + self.credit_bytes - self.sent_bytes

    def head(self, status: int = 200, *, content_type: str = "application/json") -> None:
        head = JobReplyHead(status=status, content_type=content_type)
        self._say(encode_message(Opcode.HEAD, head, stream=self._stream))

    def data(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._sent[self._stream] += len(piece)
            self._say(encode_frame(Opcode.DATA, self._stream, piece))

    def end(self) -> None:
        self._say(encode_message(Opcode.END, JobEnd(load=NodeLoad()), stream=self._stream))

    def fail(
        self, code: FailCode = "backend_broke", message: str = "it broke", *, ttft_s: float = 0.0, lease: str = ""
    ) -> None:
        failure = JobFailure(code=code, message=message, ttft_s=ttft_s, lease=lease)
        self._say(encode_message(Opcode.FAIL, failure, stream=self._stream))

    def lost(self) -> None:
        self._table.disconnect(self.id, unix_s=self._clock.unix_s())
        self.link.on_lost("the socket closed")

    def begin(self, *pieces: bytes, content_type: str = "application/json") -> None:
        self.head(content_type=content_type)
        self.data(*pieces)

    def answer(self, *pieces: bytes, status: int = 200) -> None:
        self.head(status)
        self.data(*pieces)
        self.end()

    @property
    def _stream(self) -> int:
        return len(self.opened)

    def _say(self, frame: bytes) -> None:
        self.link.receive(frame)

    def _heard(self) -> list[LinkFrame]:
        return [frame for frames in self._outbox.frames for frame in decode_frames(frames)]


class RecordingSink:
    """Implements Sink and keeps its rule: either `fail`, or `start`, `data` …, `finish`; nothing after the end."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.headers: Mapping[str, str] = {}
        self.pieces: list[bytes] = []
        self.error: SparewattError | None = None
        self.went_straight = 0

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def over(self) -> bool:
        return self.calls[-1:] in (["finish"], ["fail"])

    def start(self, headers: Mapping[str, str]) -> None:
        assert self.calls == []
        self.calls.append("start")
        self.headers = headers

    def data(self, data: bytes) -> None:
        assert self.calls == ["start"]
        self.pieces.append(data)

    def direct_path(self) -> DirectPath:
        """What goes that way waits for the client as well, until the test says that it was taken."""
        assert self.calls == ["start"]
        return DirectPath(self._write_straight, b"%x %b", WriteBatch(lambda leave: leave()), is_open=False)

    def _write_straight(self, written: bytes) -> None:
        length, _, data = written.partition(b" ")
        assert int(length, 16) == len(data)
        self.went_straight += 1
        self.data(data)

    def finish(self) -> None:
        assert self.calls == ["start"]
        self.calls.append("finish")

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None:
        assert self.calls == []
        self.calls.append("fail")
        self.error, self.headers = error, headers


class Stage:
    """Some equal nodes, a dispatcher and one job's sink."""

    def __init__(self, count: int = 5, *, rules: DispatchRules | None = None, specs: NodeSpecs | None = None) -> None:
        self.clock = ManualClock(now_s=NOW_S)
        self.table = a_table(count, specs)
        self.nodes = {node_id(n): ScriptedNode(n, self.clock, self.table) for n in range(1, count + 1)}
        self.links = {node.id: node.link for node in self.nodes.values()}
        self.rules = rules or DispatchRules()
        self.prefixes = PrefixIndex()
        self.leases: set[tuple[NodeId, str]] = set()
        """Which the chain has just given to nodes."""
        self.dispatcher = Dispatcher(
            table=self.table,
            links=self.links,
            health=HealthRules(heartbeat_s=3600),
            rules=self.rules,
            seed=7,
            clock=self.clock,
            prefixes=self.prefixes,
            is_leased=lambda node_id, order_id: (node_id, order_id) in self.leases,
        )
        self.sink = RecordingSink()

    def dispatch(
        self,
        *,
        stream: bool = True,
        wants_usage: bool = False,
        body: bytes = BODY,
        match: MatchJob | None = None,
        ranking: Ranking = BALANCED,
        prefix: tuple[int, ...] = (),
    ) -> JobRun:
        job = a_dispatched_job(
            body, match=match or a_job(model=MODEL), stream=stream, wants_usage=wants_usage, prefix=prefix
        )
        return self.dispatcher.dispatch(job, self.sink, ranking=ranking)

    def again(self, **job: Any) -> JobRun:
        """One more job, with a sink of its own."""
        self.sink = RecordingSink()
        return self.dispatch(**job)

    def turn(self, run: JobRun) -> ScriptedNode:
        """Whose turn it is (or was last)."""
        return self.nodes[run.record.attempts[-1].node_id]

    @property
    def reserved(self) -> Sequence[tuple[int, float, float]]:
        """Per node: jobs, seconds of prompts to read, tokens of context."""
        return [(row.own_jobs, round(row.own_unread_s, 9), row.own_kv_bytes / KV_TOKEN_BYTES) for row in self.table]

    def assert_nothing_left(self) -> None:
        assert set(self.reserved) <= {(0, 0, 0)}
        assert len(self.dispatcher.deadlines) == 0
        assert self.clock.pending <= 1, "the timer of all deadlines may still have to ring"
        assert self.dispatcher.running == 0


ANSWER = ROLE + text_event("Hel") + text_event("lo") + FINISH + DONE


def outcomes(run: JobRun) -> list[Outcome]:
    return [attempt.outcome for attempt in run.record.attempts]


def error_of(stage: Stage) -> dict[str, object]:
    """The in-band error object, which must be the last event."""
    last = stage.sink.body.split(b"\n\n")[-2]
    found: dict[str, object] = msgspec.json.decode(last.removeprefix(b"data: "))["error"]
    return found
