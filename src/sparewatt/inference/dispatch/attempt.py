"""One node's attempt at a job: the listener of one stream on one link.

It reads the reply, watches the deadlines, and reports one of six events to the job's run: output, done, cut at a stop
text, failed, an error of the model server, or that the request itself was at fault. After the last of them it is
silent, whatever the node still sends.
"""

from __future__ import annotations

import enum
import math
from typing import Protocol

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import KIB, REQUEST_BODY_BYTES_MAX
from sparewatt.core.timer_queue import TimerQueue
from sparewatt.inference.dispatch.assembled_reply import AssembledReply
from sparewatt.inference.dispatch.deadlines import Deadlines, silence_s
from sparewatt.inference.dispatch.failover import EmittedText, Seam
from sparewatt.inference.dispatch.failure_reasons import BROKE_OFF, NOT_NOW, ServerError, classify, failure_reason
from sparewatt.inference.dispatch.model import (
    AttemptRecord,
    BilledAnswer,
    DeliveryCount,
    DirectPath,
    DispatchRules,
    Job,
    Outcome,
)
from sparewatt.inference.dispatch.reply import (
    ChunkShape,
    ReplyBroken,
    StreamReply,
    WholeReply,
    needs_reading,
    whole_reply,
)
from sparewatt.inference.dispatch.served_model import ServedRequest
from sparewatt.inference.matcher.model import Candidate
from sparewatt.inference.text_units import CompletionUnits
from sparewatt.link.gateway_end import JobStream, NodeLink
from sparewatt.protocol.link.frames import JobEnd, JobFailure, JobReplyHead, JobRequest

LINK_STREAM_WINDOW_BYTES = 64 * KIB
"""What a node may send of a stream before the gateway has passed it on: 300 tokens, over 1,000 a second at 200 ms."""

LINK_WHOLE_WINDOW_BYTES = 256 * KIB
"""The same of an answer in one piece, which is taken as it comes: vectors are megabytes, and nobody reads slowly."""

CHUNKS_PER_TOKEN_MAX, CHUNKS_EXTRA = 1.5, 16
"""A server sends a chunk for each token or for several; a parser of calls or of reasoning may cut one in two."""
CLOCK_SLACK_S = 1e-3
"""Closer to its deadline than this, a timer is not set again: floats would let it fire for ever."""
LATE_TIMER_S = 0.5
"""A deadline that fires later than this found the gateway's own loop blocked; that time counts against no node."""
RECHECK_S = 0.5
"""How often an attempt that is late asks whether another node can take the job by now."""

_PROMISE_S_MAX = 1e6
"""What fits into OPEN. A longer prediction comes from a broken measurement and must not cost the node its link."""


Direct = tuple[
    JobStream,
    DirectPath,
    dict[DirectPath, bytes],
    bytes,
    bytes,
    int,
    int,
    ChunkShape | None,
    DeliveryCount,
    bytearray,
    float,
]
"""What the direct path needs per chunk: stream, client's path, the bytes around its text and what replaces them for the
client, counter, text buffer, and the most chunks that there may be."""


class AttemptState(enum.Enum):
    WAITING = "waiting"
    """No output yet."""
    STREAMING = "streaming"
    """The client has some of it."""
    COMPLETE = "complete"
    """The client has all of it, the stream's end marker included."""
    OVER = "over"


class AttemptListener(Protocol):
    """Implemented by the job's run."""

    def on_first_token(self) -> None:
        """An answer has begun that goes to the client in one piece, once it is whole."""
        ...

    def on_slow(self) -> None:
        """There is no output at the mark after which a second node may be asked."""
        ...

    def on_output(self, data: bytes) -> None: ...

    def direct_path(self) -> DirectPath | None:
        """A faster way than `on_output`, once there was output; valid until the attempt is over."""
        ...

    def on_unread(self, n_bytes: int) -> None:
        """These bytes took the direct path, and the client has not read them yet."""
        ...

    def on_done(self, data: bytes) -> None: ...

    def on_cut(self) -> None:
        """A stop text is complete that began in another node's part of the answer."""
        ...

    def on_bad_request(self, error: ServerError) -> None: ...

    def on_server_error(self, error: ServerError) -> None: ...

    def on_failed(self, outcome: Outcome, reason: str) -> None: ...

    def can_fail_over(self) -> bool:
        """Whether another node could go on with the answer."""
        ...

    def can_try_elsewhere(self) -> bool:
        """Whether another node could take the job before it has output."""
        ...

    def prompts_ahead_s(self) -> float:
        """How long the prompts will take that this gateway has sent to the attempt's node."""
        ...

    def is_leased(self, node_id: NodeId, order_id: str) -> bool:
        """Whether the chain has just given the node this lease."""
        ...

    def on_counted(self, delivered: DeliveryCount, units: CompletionUnits) -> BilledAnswer | None:
        """The attempt has sent all that it will. Returns the bill of the whole answer; None where nothing is billed."""
        ...


class Attempt:
    """Implements StreamListener and DeadlineHandler."""

    __slots__ = (
        "_began_s",
        "_chunks_max",
        "_clock",
        "_deadlines",
        "_direct",
        "_due_s",
        "_has_no_direct_path",
        "_heard_at_s",
        "_job",
        "_longest_pause_s",
        "_marks",
        "_passing",
        "_promised_ttft_s",
        "_refusal",
        "_reply",
        "_rules",
        "_seam",
        "_served",
        "_state",
        "_status",
        "_stream",
        "_was_slow",
        "candidate",
        "owner",
        "record",
        "refused_promise",
        "stated_ttft_s",
        "was_throttled",
    )  # fmt: skip

    def __init__(
        self,
        job: Job,
        candidate: Candidate,
        record: AttemptRecord,
        *,
        owner: AttemptListener,
        rules: DispatchRules,
        clock: Clock,
        deadlines: TimerQueue,
        marks: Deadlines,
        promised_ttft_s: float = 0.0,
        seam: Seam | None = None,
        served: ServedRequest | None = None,
    ) -> None:
        """`served`: model and body for the node's server, where the job's do not suit it."""
        self._job = job
        self._served = served or ServedRequest(job.match.model, job.body)
        self._seam = seam
        self._promised_ttft_s = min(promised_ttft_s, _PROMISE_S_MAX)
        self.owner = owner
        self._marks = marks
        self._was_slow = False
        self._rules = rules
        self._clock = clock
        self._deadlines = deadlines
        self.candidate = candidate
        self.record = record
        is_renamed = bool(job.reply_model) and job.reply_model != self._served.model
        reply_model = msgspec.json.encode(job.reply_model) if is_renamed else None
        self._reply: StreamReply | WholeReply
        self._passing: StreamReply | None = None
        """The reply, if chunks may be forwarded without parsing once their shape is known."""
        if job.call.stream:
            self._reply = reply = StreamReply(
                wants_usage=job.call.wants_usage,
                bill=owner.on_counted,
                seam=seam,
                reply_model=reply_model,
                answers=job.call.answers,
            )
            self._passing = reply if seam is None else None
        elif self._served.prompts:
            self._reply = AssembledReply(
                prompts=self._served.prompts,
                bill=owner.on_counted,
                reply_model=reply_model,
                answers=job.call.answers,
            )
        else:
            self._reply = whole_reply(
                job.call.path, bill=owner.on_counted, reply_model=reply_model, answers=job.call.answers
            )
        limit = job.output_limit
        self._chunks_max = math.inf if limit is None else limit * CHUNKS_PER_TOKEN_MAX + CHUNKS_EXTRA
        self._direct: Direct | None = None
        self._has_no_direct_path = False
        self._refusal: WholeReply | None = None
        self._status = 0
        self._stream: JobStream | None = None
        self._began_s = self._due_s = self._heard_at_s = 0.0
        self._longest_pause_s = math.inf
        """Between two tokens; infinite until the first has come, so that no pause counts."""
        self._state = AttemptState.WAITING
        self.was_throttled = False
        """Whether it ever ran out of flow-control credit: then the client set the pace, not the node."""
        self.stated_ttft_s = 0.0
        """The time to first token that a node expects which refused; 0 if it says nothing."""
        self.refused_promise = False
        """Whether the node refused because it cannot keep the promised first-token time: without one it may accept."""

    @property
    def has_output(self) -> bool:
        """Whether an answer has begun, as far as that is seen."""
        return isinstance(self._reply, StreamReply | AssembledReply) and self._reply.started

    @property
    def is_complete(self) -> bool:
        return self._state is AttemptState.COMPLETE

    @property
    def tokens(self) -> int:
        return self._reply.tokens

    @property
    def delivered(self) -> DeliveryCount:
        return self._reply.delivered

    def units(self) -> CompletionUnits:
        """What of its part of the answer a client can read."""
        return self._reply.units()

    @property
    def emitted(self) -> EmittedText | None:
        """The text of a streamed answer that it has forwarded."""
        return self._reply.emitted if isinstance(self._reply, StreamReply) else None

    def answer_text(self) -> str | None:
        """The text of a streamed answer; None if it is more than one text."""
        emitted = self.emitted
        return None if emitted is None or emitted.is_more_than_text else emitted.text()

    def start(self, link: NodeLink) -> None:
        job, match, (model, body, prompts) = self._job, self._job.match, self._served
        self._began_s = self._heard_at_s = self._clock.now_s()
        self._watch(self._began_s + self._marks.hedge_s)
        is_streamed = job.call.stream or prompts > 0
        text = self._seam.text.encode() if self._seam is not None else b""
        meta = JobRequest(
            path=job.call.path,
            job=match.id,
            model=model,
            body_bytes=len(body) + len(text),
            stream=is_streamed,
            window_bytes=LINK_STREAM_WINDOW_BYTES if is_streamed else LINK_WHOLE_WINDOW_BYTES,
            promised_ttft_s=self._promised_ttft_s,
            prompt_tokens=match.prompt_tokens,
            cached_tokens=self.candidate.cached_tokens,
            continue_bytes=len(text),
        )
        if meta.body_bytes > REQUEST_BODY_BYTES_MAX:  # it fitted under another name
            self._fail(Outcome.REFUSED, "the request is too long under the name that the node's server uses")
            return
        try:
            self._stream = link.open(meta, body + text if text else body, self)
        except ProtocolViolation as error:
            self._fail(Outcome.FAILED, str(error))

    def cancel(self) -> None:
        """Stop it on the node; nothing is reported."""
        stream = self._stream
        self._finish()
        if stream is not None:
            stream.cancel()

    def consumed(self, n_bytes: int) -> None:
        """The client has read these bytes: credit for the node, sent once it is a good part of the window."""
        stream = self._stream
        if stream is not None:
            stream.credit_due_bytes += n_bytes
            if stream.credit_due_bytes >= stream.credit_step_bytes:
                self._give_credit(stream)

    # what the link calls

    def on_head(self, head: JobReplyHead) -> None:
        self._status = head.status
        if head.status != 200:
            self._refusal = WholeReply()
        elif isinstance(self._reply, AssembledReply) and head.content_type == "application/json":
            self._reply = self._reply.unstreamed()  # some servers never stream

    def on_data(self, data: bytes) -> None:
        stream = self._stream
        if self._state is AttemptState.OVER or stream is None:
            return
        if self._reply.chunks_seen > self._chunks_max:
            self._fail(Outcome.FAILED, "the node wrote more than the request allows")
            return
        now_s = self._clock.now_s()
        if stream.window_left_bytes <= 0:
            self.was_throttled = True
        elif now_s - self._heard_at_s > self._longest_pause_s:
            self._longest_pause_s = now_s - self._heard_at_s
        self._heard_at_s = now_s
        passing = self._passing
        if passing is not None and (unread := passing.forward_unread(data)) is not None:
            if unread is not data:
                self._make_room(len(data) - len(unread))
            self.owner.on_output(unread)
            if self._direct is None and not self._has_no_direct_path:
                self._enter_direct_path(passing, stream)
            return
        if self._direct is not None:
            self._leave_direct_path(stream)
        try:
            self._read(data)
        except ReplyBroken as broken:
            self._fail_broken(broken)

    def on_end(self, _: JobEnd) -> None:
        if self._state is AttemptState.OVER:
            return
        if self._refusal is not None:
            self._end_refused(classify(self._status, self._refusal.body()))
            return
        try:
            rest = self._reply.end()
        except ReplyBroken as error:
            self._fail(Outcome.FAILED, str(error))
            return
        self._finish()
        self.owner.on_done(rest)

    def on_fail(self, fail: JobFailure) -> None:
        if not self._may_break_off(fail):
            self._fail(Outcome.FAILED, BROKE_OFF)
            return
        outcome = Outcome.REFUSED if fail.code in ("refused", "leased") else Outcome.FAILED
        self.refused_promise = fail.code == "refused" and self._promised_ttft_s > 0
        self.stated_ttft_s = fail.ttft_s
        self._fail(outcome, failure_reason(fail.code, is_late=self.refused_promise and fail.ttft_s > 0))

    def _may_break_off(self, fail: JobFailure) -> bool:
        """A job that has begun is refused no more, unless the chain says that the node has just won a lease."""
        if fail.code == "leased":
            return self.owner.is_leased(self.candidate.node_id, fail.lease)
        return fail.code != "refused" or not self.has_output

    # the direct path

    def _enter_direct_path(self, reply: StreamReply, stream: JobStream) -> None:
        """The shape of the chunks is known: from now on each takes one call from its link to its client."""
        shape, path = reply.direct_shape(), self.owner.direct_path()
        if path is None or shape is None:
            self._has_no_direct_path = path is None
            return
        before, after, sent, delivered, buffer = shape
        pieces, n_before, n_after = path.batch.pieces, len(before), -len(after)
        most = self._chunks_max
        self._direct = (stream, path, pieces, before, after, n_before, n_after, sent, delivered, buffer, most)
        stream.on_data = self._pass_directly

    def _leave_direct_path(self, stream: JobStream) -> None:
        """Fall back to `on_data`, until the shape is known again."""
        self._direct = None
        stream.on_data = self.on_data

    def _pass_directly(self, data: bytes) -> None:
        """All that `on_data` and its callees do with one chunk of the known shape; anything else goes to `on_data`."""
        stream, path, pieces, before, after, n_before, n_after, sent, delivered, buffer, most = self._direct  # type: ignore[misc]
        is_like = data.startswith(before) and data.endswith(after)
        if is_like and stream.window_left_bytes > 0 and delivered.chunks <= most:
            text = data[n_before:n_after]
            if text and needs_reading(text) is None:
                now_s = self._clock.now_s()
                pause_s = now_s - self._heard_at_s
                if pause_s > self._longest_pause_s:  # noqa: PLR1730 (a call less)
                    self._longest_pause_s = pause_s
                self._heard_at_s = path.last_added_s = now_s
                delivered.chunks += 1
                delivered.text_bytes += len(text)
                buffer += text
                n_bytes = len(data)
                if sent is not None:
                    data = sent.before + text + sent.after
                if path in pieces:
                    pieces[path] += path.frame_format % (len(data), data)
                else:
                    pieces[path] = path.frame_format % (len(data), data)
                    if len(pieces) == 1:
                        path.batch.schedule()
                if path.is_open:
                    stream.credit_due_bytes += n_bytes
                    if stream.credit_due_bytes >= stream.credit_step_bytes:
                        self._give_credit(stream)
                else:
                    path.unread_bytes += n_bytes
                    self.owner.on_unread(n_bytes)
                return
        self.on_data(data)

    # inside

    def _read(self, data: bytes) -> None:
        if self._refusal is not None:
            self._refusal.feed(data)
            self._make_room(len(data))
        elif isinstance(self._reply, WholeReply):
            self._reply.feed(data)
            self._make_room(len(data))
            if self._state is AttemptState.WAITING and self.has_output:
                self._state = AttemptState.STREAMING
                self._watch_for_silence()
                self.owner.on_first_token()
        else:
            self._read_stream(self._reply, data)

    def _read_stream(self, reply: StreamReply, data: bytes) -> None:
        was_started = reply.started
        passed = reply.feed(data)
        if passed.broken is None or was_started:  # else nothing was sent yet, and another node can start over
            self._make_room(len(data) - len(passed.data))
            if reply.started and not was_started:
                self._state = AttemptState.STREAMING
                self._watch_for_silence()
            self._pass_on(passed.data, complete=reply.done)
        if reply.is_cut:
            self.cancel()
            self.owner.on_cut()
        elif passed.broken is not None:
            self._fail_broken(passed.broken)

    def _pass_on(self, data: bytes, *, complete: bool) -> None:
        if data:
            self._state = AttemptState.COMPLETE if complete else self._state
            self.owner.on_output(data)

    def _make_room(self, n_bytes: int) -> None:
        """Return credit for bytes that are not on their way to the client.

        Buffered bytes (an incomplete event, a role without text) are credited early, so that a long event never waits
        for credit that waits for its end. When they are forwarded after all, `n_bytes` is negative.
        """
        if n_bytes:
            self.consumed(n_bytes)

    def _give_credit(self, stream: JobStream) -> None:
        if stream.window_left_bytes <= 0:
            self._heard_at_s = self._clock.now_s()  # it was silent because it had no credit
        if self._direct is not None:
            self._leave_direct_path(stream)  # for one chunk: `on_data` bounds the text buffer
        stream.send_credit()

    def _end_refused(self, error: ServerError) -> None:
        self._finish()
        if error.is_clients_fault:
            self.owner.on_bad_request(error)
        elif error.status in NOT_NOW:
            self.owner.on_failed(Outcome.REFUSED, error.reason)
        else:
            self.owner.on_server_error(error)

    def _fail_broken(self, broken: ReplyBroken) -> None:
        """Before any output, an error event is what an error's status would have been: some servers send 200 first."""
        error = broken.server_error
        if error is not None and error.is_clients_fault and not self.has_output:
            self.cancel()
            self.owner.on_bad_request(error)
        else:
            self._fail(Outcome.FAILED, str(broken))

    def _fail(self, outcome: Outcome, reason: str) -> None:
        """The node failed. If the client has its [DONE] already, the job is done."""
        if self._state is AttemptState.OVER:
            return
        was_complete = self.is_complete
        self.cancel()
        if was_complete:
            self.owner.on_done(b"")
        else:
            self.owner.on_failed(outcome, reason)

    def _time_out(self, reason: str) -> None:
        self._fail(Outcome.TIMED_OUT, reason)

    def on_deadline(self) -> None:
        """A mark on the way to the first token, or the next check for a stalled stream."""
        if not self.has_output:
            self._check_first_token()
            return
        # Without credit the node cannot send: then the client is the slow one.
        now_s = self._clock.now_s()
        quiet_s = 0.0 if self._has_no_credit() else now_s - self._heard_at_s
        patience_s = self._patience_s()
        if quiet_s >= patience_s - CLOCK_SLACK_S:
            self._time_out("went silent in the middle of the answer")
        else:
            self._deadlines.set(self, now_s + patience_s - quiet_s)

    def _watch(self, due_s: float) -> None:
        self._due_s = due_s
        self._deadlines.set(self, due_s)

    def _check_first_token(self) -> None:
        now_s, marks = self._clock.now_s(), self._marks
        late_s = now_s - self._due_s
        if late_s > LATE_TIMER_S:
            self._began_s += late_s
        waited_s = now_s - self._began_s + CLOCK_SLACK_S
        if waited_s >= marks.patience_s or (waited_s >= marks.miss_s and self.owner.can_try_elsewhere()):
            self._time_out("no first token in time")
            return
        if waited_s >= marks.hedge_s and not self._was_slow:
            self._was_slow = True
            self.owner.on_slow()
            if self._state is AttemptState.OVER:
                return
        next_s = marks.miss_s if waited_s < marks.miss_s else min(marks.patience_s, waited_s + RECHECK_S)
        self._watch(self._began_s + (next_s if self._was_slow else marks.hedge_s))

    def _watch_for_silence(self) -> None:
        """After the first token, check for silence since the last byte. The timer is set again only when it fires."""
        self._longest_pause_s = 0.0
        soon_s = min(self._rules.stall_floor_s, self._rules.idle_s)  # most answers end before the first check
        self._deadlines.set(self, self._heard_at_s + soon_s)

    def _patience_s(self) -> float:
        """Silence allowed before the next token: longer for a node that paused before, or if no other can continue."""
        rules, node = self._rules, self.candidate
        if self.is_complete or not self.owner.can_fail_over():
            return rules.idle_s
        written_s = max(0.0, node.predicted_finish_s - node.predicted_ttft_s)
        return silence_s(
            rules,
            step_s=written_s / max(1, self._job.match.output_tokens),
            longest_pause_s=self._longest_pause_s,
            prompts_s=self.owner.prompts_ahead_s(),
        )

    def _has_no_credit(self) -> bool:
        return self._stream is not None and self._stream.window_left_bytes <= 0

    def _finish(self) -> None:
        """Stream and attempt refer to each other: cut here, both are freed without the garbage collector."""
        self._state = AttemptState.OVER
        self._deadlines.cancel(self)
        self._stream = self._direct = None
