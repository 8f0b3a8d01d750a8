"""One request that a model answers, and its reply: callbacks from the head to the last byte, without a framework.

1 `enter`: who sends it, from the head alone → 2 `submit`: the body is here; a `Submission` routes, holds and starts it
→ 3 as a `Sink`, it writes the reply to the client as it comes → 4 over: what was charged is settled, and the connection
is told. A task is made only where something must be waited for: a browser's session, an `Idempotency-Key`, credits.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Coroutine, Mapping
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
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.context import RequestContext
from sparewatt.edge.cors import cors_headers
from sparewatt.edge.idempotency import (
    CachedAnswer,
    Idempotency,
    ProducedAnswer,
    Repetition,
    cacheable,
    key_of,
)
from sparewatt.edge.middleware import ErrorCounter
from sparewatt.edge.proxies import detour_error
from sparewatt.edge.reply_head import CHUNK, LAST_CHUNK, DateHeader, chunk_bytes, header_lines, reply_head_bytes
from sparewatt.edge.request_head import RequestHead
from sparewatt.edge.request_log import CLIENT_LEFT, RequestLine, log_finished
from sparewatt.edge.settings import EdgeSettings
from sparewatt.edge.timeouts import ClientTimeouts
from sparewatt.inference.call import ModelCall, ReplyFilter
from sparewatt.inference.dispatch.buffered_sink import KEEP_ALIVE
from sparewatt.inference.dispatch.model import DirectPath, WriteBatch
from sparewatt.inference.service import InferenceService, RequestOptions, Submission
from sparewatt.protocol.openai.chat import error_body, error_headers

STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
_log = Logger("sparewatt.gateway")

BodyReader = Callable[[bytes], ModelCall]


class Endpoint(NamedTuple):
    """A path that models answer, and how its bodies are read."""

    path: str
    read: BodyReader


class ClientSocket(Protocol):
    """The connection as an exchange sees it."""

    peer: str
    is_paused: bool
    """Whether the client does not read what it is sent."""
    write_batch: WriteBatch

    def write(self, data: bytes) -> None: ...

    def writer(self) -> Callable[[bytes], None] | None:
        """What `write` calls, as long as the client is connected."""
        ...

    def on_replied(self, *, closes: bool) -> None: ...


class InferenceEndpoints:
    """The endpoints that models answer, and what all their exchanges share."""

    def __init__(
        self,
        readers: Mapping[str, BodyReader],
        *,
        service: InferenceService,
        auth: Authenticator,
        idempotency: Idempotency,
        errors: ErrorCounter,
        settings: EdgeSettings,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._endpoints = {path: Endpoint(path, read) for path, read in readers.items()}
        self.service = service
        self.auth = auth
        self.idempotency = idempotency
        self.errors = errors
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.date = DateHeader()
        self._tasks: set[asyncio.Task[None]] = set()

    def endpoint(self, head: RequestHead) -> Endpoint | None:
        return self._endpoints.get(head.path) if head.method == b"POST" else None

    def exchange(self, socket: ClientSocket, head: RequestHead, endpoint: Endpoint) -> Exchange:
        return Exchange(self, socket, head, endpoint)

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class ExchangeState(enum.Enum):
    READING = "reading"
    """The head was read, the body may still come."""
    SUBMITTING = "submitting"
    """The submission is being started: a failure is told once that has returned."""
    WAITING = "waiting"
    """For the first byte of the reply."""
    REPLYING = "replying"
    """The head of the reply is out."""
    OVER = "over"


class Exchange(RequestContext):
    """Implements Sink."""

    __slots__ = (
        "_body", "_direct", "_direct_at_s", "_error_code", "_failure", "_filter", "_head", "_headers", "_is_chunked",
        "_is_stream", "_match_id", "_on_over", "_options", "_shared", "_silent_since_s", "_socket", "_state",
        "_status", "_submission", "_task", "_untaken_bytes", "endpoint", "principal",
    )  # fmt: skip

    def __init__(self, shared: InferenceEndpoints, socket: ClientSocket, head: RequestHead, endpoint: Endpoint) -> None:
        super().__init__(
            shared.settings,
            id_=new_id("req", rng=shared.rng),
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
        """Who sends it; None until a browser's session was looked up."""
        self._options: RequestOptions | None = None
        self._failure: Exception | None = None
        """Why it is refused by its head alone; told when the body has been read."""
        self._submission: Submission[Exchange] | None = None
        self._match_id: MatchId | None = None
        self._is_stream = False
        self._is_chunked = head.version == "1.1"
        """Whether a stream is framed in chunks; for an older client it ends with the connection."""
        self._filter: ReplyFilter | None = None
        self._headers: Mapping[str, str] = {}
        self._body: list[bytes] = []
        """Of a whole reply."""
        self._status = 0
        self._error_code: str | None = None
        self._untaken_bytes = 0
        """Written and not read by the client yet."""
        self._silent_since_s = 0.0
        self._direct: DirectPath | None = None
        self._direct_at_s = 0.0
        """When the direct path was last written to, as of the last check."""
        self._task: asyncio.Task[None] | None = None
        self._on_over: asyncio.Future[None] | None = None

    # what the connection calls

    @property
    def may_refuse(self) -> bool:
        """Whether nothing was written yet."""
        return self._state is not ExchangeState.REPLYING and self._state is not ExchangeState.OVER

    @property
    def options(self) -> RequestOptions | None:
        return self._options

    def enter(self) -> bool:
        """By the head alone: whether the body is worth reading."""
        try:
            self._refuse_detour()
            principal = self.principal = self._shared.auth.identify_by_key(self)
            if principal is not None:
                self._options = self._shared.service.options(principal, self.headers)
        except Exception as error:  # noqa: BLE001 (told to the client)
            self._failure = error
        return self._failure is None

    def enter_again(self, principal: Principal, options: RequestOptions) -> None:
        """The same for a key that was let in with the same head before."""
        try:
            self._refuse_detour()
            if self._shared.auth.identify_again(self, principal):
                self._shared.service.refuse_if_draining()
                self.principal, self._options = principal, options
                return
        except Exception as error:  # noqa: BLE001 (told to the client)
            self._failure = error
            return
        self.enter()

    def submit(self, body: bytes) -> None:
        """All of the request is here."""
        self._silent_since_s = monotonic()
        if self._failure is not None:
            self.refuse(self._failure)
        elif self.principal is None or self._options is None or "idempotency-key" in self.headers:
            self._spawn(self._submit_later(body))
        else:
            self._serve(self.principal, self._options, body)

    def leave(self) -> None:
        """The client is gone."""
        if self._state is not ExchangeState.OVER:
            if self._submission is not None:
                self._submission.cancel()
            self._end()
        if self._task is not None:
            self._task.cancel()

    def on_client_stalled(self) -> None:
        """The client does not read what is written, until `on_client_caught_up`."""
        if self._direct is not None:
            self._direct.is_open = False

    def on_client_caught_up(self) -> None:
        n_bytes, self._untaken_bytes = self._untaken_bytes, 0
        direct = self._direct
        if direct is not None:
            n_bytes += direct.unread_bytes
            direct.unread_bytes = 0
            direct.is_open = True
        if n_bytes and self._submission is not None:
            self._submission.consumed(n_bytes)

    def keep_alive(self, now_s: float, timeouts: ClientTimeouts) -> None:
        """A stream that was silent for too long gets its head, so that the client knows it is served, or a comment."""
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
        """Answer with an error; nothing was written yet."""
        if isinstance(error, SparewattError):
            self._reply_error(error, error_body(error), error_headers(error))
            return
        _log.crash("request_crashed", error, request=self.id, route=self.path)
        broken = InternalError(f"Something broke here. Please report it with the id {self.id}.")
        self._reply_error(broken, error_body(broken), error_headers(broken))

    # Sink

    def start(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def data(self, data: bytes) -> None:
        if not self._is_stream:
            self._body.append(data)
            return
        if self._state is not ExchangeState.REPLYING:
            self._open_stream()
        submission = self._submission
        if self._filter is None and self._is_chunked:
            self._silent_since_s = monotonic()
            self._write(CHUNK % (len(data), data))
        else:
            self._write_chunk(data if self._filter is None else self._filter.feed(data))
        if self._socket.is_paused or submission is None:
            self._untaken_bytes += len(data)
        else:
            submission.consumed(len(data))

    def direct_path(self) -> DirectPath | None:
        """For a stream in chunks whose pieces are written as they are."""
        if self._direct is None and self._state is ExchangeState.REPLYING and self._is_chunked and self._is_stream:
            write = self._socket.writer()
            if write is not None and self._filter is None and self._submission is not None:
                socket = self._socket
                self._direct = DirectPath(write, CHUNK, socket.write_batch, is_open=not socket.is_paused)
        return self._direct

    def finish(self) -> None:
        if self._is_stream:
            self._close_stream()
        else:
            self._reply_whole()

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None:
        if self._state is ExchangeState.REPLYING:  # its head went out early: the error can only be the last event
            self._write_chunk(b"data: " + msgspec.json.encode(error_body(error)) + b"\n\n")
            self._close_stream()
        elif self._state is ExchangeState.SUBMITTING:  # its position in line is known once `begin` has returned
            self._failure, self._headers = error, headers
        elif self._submission is not None:
            body, reply_headers = self._submission.refusal(error, headers)
            self._reply_error(error, body, reply_headers)

    # inside

    def _refuse_detour(self) -> None:
        if self.settings.behind_proxy:
            error = detour_error(self.peer, self.headers, self.settings)
            if error is not None:
                raise error

    def _serve(self, principal: Principal, options: RequestOptions, body: bytes) -> None:
        """Whatever is wrong is told to the client."""
        try:
            call = self.endpoint.read(body)
            self._is_stream, self._filter = call.stream, call.reply_filter
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

    def _charge(self, tokens: int) -> RateCharge:
        return self._shared.auth.charge(self, tokens=tokens)

    def _begin(self, submission: Submission[Exchange]) -> None:
        """The sink may hear of the reply, or of its failure, before this returns."""
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
        """A browser's session is looked up first; a request with an Idempotency-Key may have an answer already."""
        shared = self._shared
        principal = self.principal or await shared.auth.identify(self)
        options = self._options or shared.service.options(principal, self.headers)
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
        found = await shared.idempotency.once(repetition, produce, outcome=lambda produced: produced)
        if isinstance(found, CachedAnswer):
            self._reply(200, found.body, found.replay_headers())

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
        submission, headers = self._submission, self._headers
        headers = STREAM_HEADERS | (submission.reply_headers(headers) if submission is not None else dict(headers))
        self._state, self._status = ExchangeState.REPLYING, 200
        framing = "transfer-encoding: chunked\r\n" if self._is_chunked else ""
        self._socket.write(reply_head_bytes(200, headers, framing + self._connection_lines(), self._own_lines()))

    def _write_chunk(self, data: bytes) -> None:
        if data:
            self._silent_since_s = monotonic()
            self._write(chunk_bytes(data) if self._is_chunked else data)

    def _write(self, data: bytes) -> None:
        """After what the direct path has not written yet."""
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
        submission, body = self._submission, b"".join(self._body)
        headers = submission.reply_headers(self._headers) if submission is not None else dict(self._headers)
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
        self._settle()  # the reply says what is left of the rate limit
        framing = f"content-length: {len(body)}\r\n" + self._connection_lines()
        self._socket.write(reply_head_bytes(status, headers, framing, self._own_lines()) + body)
        self._end()
        self._socket.on_replied(closes=not self._head.keep_alive)

    def _own_lines(self) -> str:
        lines = self.reply_lines(self._shared.clock.now_s())
        return lines + header_lines(cors_headers(self.path, self.headers)) if "origin" in self.headers else lines

    def _connection_lines(self) -> str:
        date = self._shared.date.line()
        if not self._head.keep_alive or (self._status == 200 and self._is_stream and not self._is_chunked):
            return "connection: close\r\n" + date
        return date if self._is_chunked else "connection: keep-alive\r\n" + date

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
        """Over, however. The submission refers to this sink, and so does the trace of a refusal: cut here, all are
        freed at once and not by the garbage collector, which would block the event loop for 20 ms.
        """
        self._state = ExchangeState.OVER
        self._settle()
        self._submission = self._failure = None
        if self._direct is not None:
            self._direct.take_unwritten()  # for nobody: the client is gone, or has it
            self._direct = None
        if self.settings.request_log:
            asyncio.get_running_loop().call_soon(self._log_finished)  # when the job is over as well
        if self._on_over is not None and not self._on_over.done():
            self._on_over.set_result(None)
