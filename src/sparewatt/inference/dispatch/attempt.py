"""One node's turn at a job: the listener of one stream on one link.

It reads the reply, keeps the deadlines, and tells the job's run one of four things: output, done, failed, or that the
request itself was at fault. After that it is silent, whatever the node still sends.
"""

from __future__ import annotations

from typing import Protocol

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import LINK_STREAM_WINDOW_BYTES
from sparewatt.inference.dispatch.model import AttemptRecord, DispatchRules, Job, Outcome
from sparewatt.inference.dispatch.reply import ReplyBroken, StreamReply, WholeReply
from sparewatt.inference.matcher.model import Candidate
from sparewatt.link.gateway_end import NodeLink, Stream
from sparewatt.protocol.link import End, Fail, Head, Open

_CLIENTS_FAULT = (400, 413, 415, 422)
"""Statuses of a model server that another node would only repeat. All others are the node's own trouble."""


class AttemptOwner(Protocol):
    """The job's run."""

    def on_output(self, data: bytes) -> None: ...

    def on_done(self, data: bytes) -> None: ...

    def on_bad_request(self, status: int, message: str) -> None: ...

    def on_failed(self, outcome: Outcome, reason: str) -> None: ...


class Attempt:
    def __init__(
        self,
        job: Job,
        candidate: Candidate,
        record: AttemptRecord,
        *,
        owner: AttemptOwner,
        rules: DispatchRules,
        clock: Clock,
    ) -> None:
        self._job = job
        self._owner = owner
        self._rules = rules
        self._clock = clock
        self._candidate = candidate
        self.record = record
        self._reply: StreamReply | WholeReply = StreamReply(wants_usage=job.wants_usage) if job.stream else WholeReply()
        self._refusal: WholeReply | None = None
        self._status = 0
        self._stream: Stream | None = None
        self._timer: Timer | None = None
        self._heard_at_s = clock.now_s()
        self._over = False

    @property
    def started(self) -> bool:
        return isinstance(self._reply, StreamReply) and self._reply.started

    @property
    def tokens(self) -> int:
        return self._reply.tokens

    def start(self, link: NodeLink) -> None:
        ttft_s = self._candidate.predicted_ttft_s
        deadline_s = max(self._rules.first_token_floor_s, self._rules.first_token_factor * ttft_s)
        if not self._job.stream:
            deadline_s = max(deadline_s, self._rules.whole_reply_floor_s)
        self._timer = self._clock.call_later(deadline_s, lambda: self._time_out("no first token in time"))
        meta = Open(
            path="/v1/chat/completions",
            model=self._job.match.model,
            body_bytes=len(self._job.body),
            stream=self._job.stream,
            window_bytes=LINK_STREAM_WINDOW_BYTES,
            promised_ttft_s=ttft_s,
        )
        self._stream = link.open(meta, self._job.body, self)

    def cancel(self) -> None:
        """Stop it on the node; nobody is told."""
        self._finish()
        if self._stream is not None:
            self._stream.cancel()

    def consumed(self, n_bytes: int) -> None:
        """The client has taken that much; the node may send on."""
        if self._stream is not None:
            self._stream.grant(n_bytes)

    # what the link calls

    def on_head(self, head: Head) -> None:
        self._status = head.status
        if head.status != 200:
            self._refusal = WholeReply()

    def on_data(self, data: bytes) -> None:
        if self._over:
            return
        self._heard_at_s = self._clock.now_s()
        try:
            self._read(data)
        except (ReplyBroken, ProtocolViolation) as error:
            self._break(str(error))

    def on_end(self, _: End) -> None:
        if self._over:
            return
        if self._refusal is not None:
            self._end_refused(self._refusal.error_message() or f"the model server answered {self._status}")
            return
        try:
            rest = self._reply.end()
        except ReplyBroken as error:
            self._break(str(error))
            return
        self._finish()
        self._owner.on_done(rest)

    def on_fail(self, fail: Fail) -> None:
        if not self._over:
            self._finish()
            outcome = Outcome.REFUSED if fail.code == "refused" else Outcome.FAILED
            self._owner.on_failed(outcome, f"{fail.code}: {fail.message}")

    # inside

    def _read(self, data: bytes) -> None:
        if self._refusal is not None:
            self._refusal.feed(data)
            self.consumed(len(data))
        elif isinstance(self._reply, WholeReply):
            self._reply.feed(data)
            self.consumed(len(data))
        else:
            self._read_stream(self._reply, data)

    def _read_stream(self, reply: StreamReply, data: bytes) -> None:
        was_started = reply.started
        passed = reply.feed(data)
        self.consumed(passed.withheld_bytes)
        if reply.started and not was_started:
            self._watch_for_silence()
        if passed.data:
            self._owner.on_output(passed.data)

    def _end_refused(self, message: str) -> None:
        self._finish()
        if self._status in _CLIENTS_FAULT:
            self._owner.on_bad_request(self._status, message)
        else:
            outcome = Outcome.REFUSED if self._status in (429, 503) else Outcome.FAILED
            self._owner.on_failed(outcome, f"status {self._status}: {message}")

    def _break(self, reason: str) -> None:
        self.cancel()
        self._owner.on_failed(Outcome.FAILED, reason)

    def _time_out(self, reason: str) -> None:
        self.cancel()
        self._owner.on_failed(Outcome.TIMED_OUT, reason)

    def _watch_for_silence(self) -> None:
        """After the first token, silence is judged from the last byte; the alarm is set again only when it rings."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(self._rules.idle_s, self._check_silence)

    def _check_silence(self) -> None:
        quiet_s = self._clock.now_s() - self._heard_at_s
        if quiet_s >= self._rules.idle_s:
            self._time_out("went silent in the middle of the answer")
        else:
            self._timer = self._clock.call_later(self._rules.idle_s - quiet_s, self._check_silence)

    def _finish(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
