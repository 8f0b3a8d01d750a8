"""One request that a model answers, and its reply: callbacks from the head to the last byte, without a framework.

1 `enter` authenticates by the head alone → 2 `submit` gets the body; a `Submission` routes, holds and starts the job →
3 as its `Sink`, the exchange writes the reply to the client as it comes → 4 `_end` settles the charge. A task is made
only to wait for a browser's session, an `Idempotency-Key` or credits.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple, Protocol

import msgspec

from sparewatt.accounts.principal import Principal
from sparewatt.accounts.rate_limits import RateCharge
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InternalError, JobFailed, SparewattError
from sparewatt.core.ids import MatchId, new_id
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.edge.auth import Authenticator, RequestContext
from sparewatt.edge.cors import cors_headers
from sparewatt.edge.http1 import (
    CHUNK,
    LAST_CHUNK,
    DateHeader,
    RequestHead,
    chunk_bytes,
    header_lines,
    reply_head_bytes,
)
from sparewatt.edge.idempotency import CachedAnswer, Idempotency, ProducedAnswer, Repetition, cacheable, key_of
from sparewatt.edge.middleware import CLIENT_LEFT, ErrorCounter, RequestLine, log_finished
from sparewatt.edge.proxies import bypass_error
from sparewatt.edge.settings import ClientTimeouts, EdgeSettings
from sparewatt.inference.call import ModelCall, ReplyFilter
from sparewatt.inference.dispatch.buffered_sink import KEEP_ALIVE
from sparewatt.inference.dispatch.model import DirectPath, WriteBatch
from sparewatt.inference.service import InferenceService, RequestOptions, Submission
from sparewatt.policy.model import Retention
from sparewatt.protocol.openai.chat import error_body, error_headers

STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
_log = Logger("sparewatt.gateway")

BodyReader = Callable[[bytes], ModelCall]


class Endpoint(NamedTuple):
    """A path that models answer, and how its bodies are read."""

    path: str
    read: BodyReader


class AnswerRecording(Protocol):
    """An answer that is stored on its way to the client."""

    def feed(self, data: bytes) -> None:
        """The next bytes of a stream."""

    async def store(self, whole: bytes) -> None:
        """`whole`: the reply, if it came in one piece."""


class AnswerRecorder(Protocol):
    """Stores answers for which a request asked for it."""

    def begin(
        self, principal: Principal, authorization: str | None, body: bytes, *, retention: Retention
    ) -> AnswerRecording: ...


class ClientSocket(Protocol):
    """The connection as an exchange sees it."""

    peer: str
    is_paused: bool
    """Whether the client does not read what it is sent (back-pressure)."""
    write_batch: WriteBatch

    def write(self, data: bytes) -> None: ...

    def writer(self) -> Callable[[bytes], None] | None:
        """The transport's own `write`; None if the client is gone."""

    def on_replied(self, *, closes: bool) -> None: ...


@dataclass(slots=True, kw_only=True)
class InferenceEndpoints:
    """The endpoints that models answer, and what all their exchanges share."""

    readers: Mapping[str, BodyReader]
    """By path."""
    service: InferenceService
    auth: Authenticator
    idempotency: Idempotency
    errors: ErrorCounter
    settings: EdgeSettings
    clock: Clock
    rng: Rng
    recorder: AnswerRecorder
    date: DateHeader = field(default_factory=DateHeader)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def endpoint(self, head: RequestHead) -> Endpoint | None:
        path = head.path
        read = self.readers.get(path) if head.method == b"POST" else None
        return Endpoint(path, read) if read is not None else None

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class ExchangeState(enum.Enum):
    READING = "reading"
    """The head was read, the body may be incomplete."""
    SUBMITTING = "submitting"
    """`Submission.begin` is running. A failure is answered after it has returned."""
    WAITING = "waiting"
    """For the first byte of the reply."""
    REPLYING = "replying"
    """The head of the reply was sent."""
    OVER = "over"


class Exchange(RequestContext):
    """Implements Sink."""

    __slots__ = (
        "_body", "_direct", "_direct_at_s", "_error_code", "_failure", "_filter", "_head", "_headers", "_is_chunked",
        "_is_stream", "_match_id", "_on_over", "_recording", "_shared", "_silent_since_s", "_socket", "_state",
        "_status", "_submission", "_task", "_unread_bytes", "endpoint", "options", "principal",
    )  # fmt: skip

    def __init__(self, shared: InferenceEndpoints, socket: ClientSocket, head: RequestHead, endpoint: Endpoint) -> None:
        super().__init__(
            settings=shared.settings,
            id=new_id("req", rng=shared.rng),
            method="POST",
            path=endpoint.path,
            headers=head.headers,
            peer=socket.peer,
            began_s=shared.clock.now_s(),
        )
        self._shared = shared
        self._socket = socket
        self._head = head
        self.endpoint = endpoint
        self._state = ExchangeState.READING
        self.principal: Principal | None = None
        """None until a browser's session was looked up."""
        self.options: RequestOptions | None = None
        self._failure: Exception | None = None
        """Why the request is refused by its head alone; answered when the body has been read."""
        self._submission: Submission[Exchange] | None = None
        self._match_id: MatchId | None = None
        self._is_stream = False
        self._is_chunked = head.version == "1.1"
        """Whether a stream is framed in chunks; for an older client it ends with the connection."""
        self._filter: ReplyFilter | None = None
        self._recording: AnswerRecording | None = None
        self._headers: Mapping[str, str] = {}
        self._body: list[bytes] = []
        """Of a reply that is not streamed."""
        self._status = 0
        self._error_code: str | None = None
        self._unread_bytes = 0
        """Written, and not read by the client yet."""
        self._silent_since_s = 0.0
        self._direct: DirectPath | None = None
        self._direct_at_s = 0.0
        """When the direct path was last written to, as of the last check."""
        self._task: asyncio.Task[None] | None = None
        self._on_over: asyncio.Future[None] | None = None

    # called by the connection

    @property
    def may_refuse(self) -> bool:
        """Whether nothing was written yet."""
        return self._state is not ExchangeState.REPLYING and self._state is not ExchangeState.OVER

    def enter(self) -> bool:
        """Authenticate by the head alone. False if the body need not be read."""
        try:
            self._refuse_bypass()
            principal = self.principal = self._shared.auth.identify_by_key(self)
            if principal is not None:
                self.options = self._shared.service.options(principal, self.headers)
        except Exception as error:  # noqa: BLE001 (becomes the reply)
            self._failure = error
        return self._failure is None

    def enter_again(self, principal: Principal, options: RequestOptions) -> None:
        """The same for a known head, whose key was accepted before."""
        try:
            self._refuse_bypass()
            if self._shared.auth.identify_again(self, principal):
                self._shared.service.refuse_if_draining()
                self.principal, self.options = principal, options
                return
        except Exception as error:  # noqa: BLE001 (becomes the reply)
            self._failure = error
            return
        self.enter()

    def submit(self, body: bytes) -> None:
        """The request is complete."""
        self._silent_since_s = monotonic()
        if self._failure is not None:
            self.refuse(self._failure)
        elif self.principal is None or self.options is None or "idempotency-key" in self.headers:
            self._spawn(self._submit_later(body))
        else:
            self._serve(self.principal, self.options, body)

    def leave(self) -> None:
        """The client disconnected."""
        if self._state is not ExchangeState.OVER:
            if self._submission is not None:
                self._submission.cancel()
            self._end()
        if self._task is not None:
            self._task.cancel()

    def on_client_stalled(self) -> None:
        """The client stopped reading, until `on_client_caught_up`."""
        if self._direct is not None:
            self._direct.is_open = False

    def on_client_caught_up(self) -> None:
        n_bytes, self._unread_bytes = self._unread_bytes, 0
        direct = self._direct
        if direct is not None:
            n_bytes += direct.unread_bytes
            direct.unread_bytes = 0
            direct.is_open = True
        if n_bytes and self._submission is not None:
            self._submission.consumed(n_bytes)

    def keep_alive(self, now_s: float, timeouts: ClientTimeouts) -> None:
        """If nothing was sent for `keep_alive_s`, send a stream's head early, or an SSE comment as a keep-alive."""
        if self._match_id is None or not self._is_stream or self._socket.is_paused:
            return
        if self._state is ExchangeState.OVER:
            return
        direct = self._direct
        if direct is not None and direct.last_added_s != self._direct_at_s:
            self._direct_at_s, self._silent_since_s = direct.last_added_s, now_s
        if now_s - self._silent_since_s < timeouts.keep_alive_s:
            return
        self._silent_since_s = now_s
        if self._state is ExchangeState.REPLYING:
            self._write_chunk(KEEP_ALIVE)
        else:
            self._headers = {"x-sparewatt-match-id": self._match_id}
            self._open_stream()

    def refuse(self, error: Exception) -> None:
        """Reply with an error. Nothing was written yet."""
        if not isinstance(error, SparewattError):
            _log.crash("request_crashed", error, request=self.id, route=self.path)
            error = InternalError(f"Something broke here. Please report it with the id {self.id}.")
        self._reply_error(error, error_body(error), error_headers(error))

    # Sink

    def start(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        if self._submission is not None:
            self._match_id = self._submission.match.id  # of the model that answers

    def data(self, data: bytes) -> None:
        if not self._is_stream:
            self._body.append(data)
            return
        if self._state is not ExchangeState.REPLYING:
            self._open_stream()
        submission = self._submission
        if self._recording is not None:
            self._write_chunk(self._recorded(data, self._recording))
        elif self._filter is None and self._is_chunked:
            self._silent_since_s = monotonic()
            self._write(CHUNK % (len(data), data))
        else:
            self._write_chunk(data if self._filter is None else self._filter.feed(data))
        if self._socket.is_paused or submission is None:
            self._unread_bytes += len(data)
        else:
            submission.consumed(len(data))

    def direct_path(self) -> DirectPath | None:
        """For a chunked stream whose data needs no filter."""
        if self._direct is None and self._state is ExchangeState.REPLYING and self._is_chunked and self._is_stream:
            write = self._socket.writer()
            is_plain = self._filter is None and self._recording is None
            if write is not None and is_plain and self._submission is not None:
                socket = self._socket
                self._direct = DirectPath(write, CHUNK, socket.write_batch, is_open=not socket.is_paused)
        return self._direct

    def finish(self) -> None:
        if self._recording is not None:
            self._spawn(self._store(self._recording))
        else:
            self._finish()

    def _finish(self) -> None:
        if self._is_stream:
            self._close_stream()
        else:
            self._reply_whole()

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None:
        if self._state is ExchangeState.REPLYING:  # the head was sent early: the error can only be the last event
            self._write_chunk(b"data: " + msgspec.json.encode(error_body(error)) + b"\n\n")
            self._close_stream()
        elif self._state is ExchangeState.SUBMITTING:  # the queue position is known after `begin` has returned
            self._failure, self._headers = error, headers
        elif self._submission is not None:
            self._reply_error(error, *self._submission.refusal(error, headers))

    # serving

    def _refuse_bypass(self) -> None:
        if self.settings.behind_proxy:
            error = bypass_error(self.peer, self.headers, self.settings)
            if error is not None:
                raise error

    def _serve(self, principal: Principal, options: RequestOptions, body: bytes) -> None:
        try:
            call = self.endpoint.read(body)
            self._is_stream, self._filter = call.stream, call.reply_filter
            if call.stores:
                self._recording = self._begin_recording(principal, options, call, body)
            submission = self._submission = Submission(
                self._shared.service, principal, options, call, self, charge=self._charge
            )
            self._match_id = submission.match.id
            if submission.hold_here():
                self._begin(submission)
            else:
                self._spawn(self._wait_for_credits(submission))
        except Exception as error:  # noqa: BLE001 (a process boundary)
            self.refuse(error)

    def _begin_recording(
        self, principal: Principal, options: RequestOptions, call: ModelCall, body: bytes
    ) -> AnswerRecording:
        service, authorization = self._shared.service, self.authorization
        routing = service.route(call.model, principal, header=options.route, provider=call.provider)
        retention = routing.policy.retention or "day"
        return self._shared.recorder.begin(principal, authorization, body, retention=retention)

    def _recorded(self, data: bytes, recording: AnswerRecording) -> bytes:
        """What the client gets of it."""
        data = data if self._filter is None else self._filter.feed(data)
        recording.feed(data)
        return data

    async def _store(self, recording: AnswerRecording) -> None:
        """Before the last byte leaves, so that a client that has its answer finds it."""
        whole = b"".join(self._body)
        with suppress(ValueError):  # `_reply_whole` tells the client
            whole = self._filter.whole(whole) if self._filter is not None and whole else whole
        await recording.store(whole)
        if self._state is not ExchangeState.OVER:
            self._finish()

    def _charge(self, tokens: int) -> RateCharge:
        return self._shared.auth.charge(self, tokens=tokens)

    def _begin(self, submission: Submission[Exchange]) -> None:
        """The sink's methods may be called before `begin` returns."""
        self._state = ExchangeState.SUBMITTING
        submission.begin()
        if self._state is ExchangeState.SUBMITTING:
            self._state = ExchangeState.WAITING
        if self._failure is not None and isinstance(self._failure, SparewattError):
            self.fail(self._failure, self._headers)

    async def _wait_for_credits(self, submission: Submission[Exchange]) -> None:
        await submission.hold()
        if self._state is ExchangeState.OVER:
            submission.drop()
        else:
            self._begin(submission)

    async def _submit_later(self, body: bytes) -> None:
        """Look up a browser's session, or the cached answer of an Idempotency-Key, before serving."""
        shared = self._shared
        principal = self.principal or await shared.auth.identify(self)
        options = self.options or shared.service.options(principal, self.headers)
        key = key_of(self.headers)
        if key is None:
            self._serve(principal, options, body)
            return

        async def produce() -> ProducedAnswer:
            self._on_over = asyncio.get_running_loop().create_future()
            self._serve(principal, options, body)
            await self._on_over
            is_whole = self._status == 200 and bool(self._body)
            cached = cacheable(b"".join(self._body), self._headers) if is_whole else None
            return ProducedAnswer(self._status == 200, cached)

        repetition = Repetition(
            (str(principal.key_id), key),
            shared.idempotency.digest(self.path, body, options.route or "", options.ranking.name),
            on_repeat=lambda: shared.auth.charge(self),
        )
        answer = await shared.idempotency.once(repetition, produce, outcome=lambda produced: produced)
        if isinstance(answer, CachedAnswer):
            self._reply(200, answer.body, answer.replay_headers())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._task = self._shared.spawn(self._guarded(work))

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 (a process boundary)
            if self.may_refuse:
                self.refuse(error)
            else:
                _log.crash("request_crashed", error, request=self.id, route=self.path)

    # writing

    def _open_stream(self) -> None:
        self._state, self._status = ExchangeState.REPLYING, 200
        headers = STREAM_HEADERS | self._answer_headers()
        framing = "transfer-encoding: chunked\r\n" if self._is_chunked else ""
        self._socket.write(reply_head_bytes(200, headers, framing + self._connection_lines(), self._own_lines()))

    def _write_chunk(self, data: bytes) -> None:
        if data:
            self._silent_since_s = monotonic()
            self._write(chunk_bytes(data) if self._is_chunked else data)

    def _write(self, data: bytes) -> None:
        """Write after what the direct path has buffered, so that the order is right."""
        if self._direct is not None:
            data = self._direct.take_unwritten() + data
        self._socket.write(data)

    def _close_stream(self) -> None:
        if self._state is not ExchangeState.REPLYING:
            self._open_stream()
        if self._filter is not None:
            self._write_chunk(self._filter.rest())
        if self._is_chunked:
            self._write(LAST_CHUNK)
        self._end()
        self._socket.on_replied(closes=not self._head.keep_alive or not self._is_chunked)

    def _reply_whole(self) -> None:
        body, headers = b"".join(self._body), self._answer_headers()
        if self._filter is not None:
            try:
                body = self._filter.whole(body)
            except ValueError as error:
                failed = JobFailed(f"The node's answer cannot be read: {error}.")
                self._reply_error(failed, error_body(failed), {**error_headers(failed), **headers})
                return
        self._body, self._headers = [body], headers
        self._reply(200, body, headers)

    def _reply_error(self, error: SparewattError, body: Mapping[str, object], headers: Mapping[str, str]) -> None:
        self._shared.errors.count_error(error.code)
        self._error_code = error.code
        others = {name: value for name, value in headers.items() if name != "content-type"}
        self._reply(error.status, msgspec.json.encode(body), {"content-type": "application/json", **others})

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if self._state is ExchangeState.OVER:
            return
        self._state, self._status = ExchangeState.REPLYING, status
        self._settle()  # before the head is written, which has the remaining rate limit
        framing = f"content-length: {len(body)}\r\n" + self._connection_lines()
        self._socket.write(reply_head_bytes(status, headers, framing, self._own_lines()) + body)
        self._end()
        self._socket.on_replied(closes=not self._head.keep_alive)

    def _answer_headers(self) -> dict[str, str]:
        submission = self._submission
        return submission.reply_headers(self._headers) if submission is not None else dict(self._headers)

    def _own_lines(self) -> str:
        lines = self.reply_lines(self._shared.clock.now_s())
        return lines + header_lines(cors_headers(self.path, self.headers)) if "origin" in self.headers else lines

    def _connection_lines(self) -> str:
        date = self._shared.date.line()
        if not self._head.keep_alive or (self._status == 200 and self._is_stream and not self._is_chunked):
            return "connection: close\r\n" + date
        return date if self._is_chunked else "connection: keep-alive\r\n" + date

    # the end

    def _settle(self) -> None:
        if self._submission is not None:
            self._submission.settle()

    def _log_finished(self) -> None:
        match_id, dispatcher = self._match_id, self._shared.service.dispatcher
        record = dispatcher.record(match_id) if match_id is not None else None
        took_s = self._shared.clock.now_s() - self.began_s
        line = RequestLine(self.id, f"POST {self.path}", self._status or CLIENT_LEFT, took_s, self._error_code)
        log_finished(line, record)

    def _end(self) -> None:
        """The exchange is over, however it ended.

        The submission and the traceback of a refusal refer back to this sink. Without them all are freed at once; the
        garbage collector would block the event loop for 20 ms.
        """
        self._state = ExchangeState.OVER
        self._settle()
        self._submission = self._failure = None
        if self._direct is not None:
            self._direct.take_unwritten()  # dropped: the client is gone, or has it already
            self._direct = None
        if self.settings.request_log:
            asyncio.get_running_loop().call_soon(self._log_finished)  # on the next tick the job is over as well
        if self._on_over is not None and not self._on_over.done():
            self._on_over.set_result(None)
