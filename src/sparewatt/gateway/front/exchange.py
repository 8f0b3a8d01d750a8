"""One request that models answer, and its reply: callbacks from the head to the last byte.

1 `enter`: who asks, from the head alone → 2 `go`: the body is here; routed, held for, sent off → 3 the sink's calls:
written to the client as they come → 4 over: what was charged is settled, and the connection is told. A task is made
only where something must be waited for: a browser's session, an answer that is kept, credits that are not at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from time import monotonic
from typing import NamedTuple, Protocol

import msgspec

from sparewatt.accounts.limits import Charge
from sparewatt.core.errors import Internal, JobFailed, SparewattError
from sparewatt.core.ids import MatchId, new_id
from sparewatt.core.log import Log
from sparewatt.core.rng import SystemRng
from sparewatt.gateway.asking import SERVER, Asked, own_lines
from sparewatt.gateway.cors import cors_headers
from sparewatt.gateway.front.head import Head
from sparewatt.gateway.front.patience import Patience
from sparewatt.gateway.front.writing import CHUNK, LAST_CHUNK, Dates, chunk_bytes, head_bytes, header_lines
from sparewatt.gateway.http import error_headers
from sparewatt.gateway.kept_answers import Kept, Made, kept, key_of, once
from sparewatt.gateway.openai.answer import refusal_of, reply_headers
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.echo import Echo
from sparewatt.gateway.openai.errand import Errand
from sparewatt.gateway.openai.serving import Caller, Plan, Repeats, enter, enter_again, enter_here
from sparewatt.gateway.openai.sink import KEEP_ALIVE
from sparewatt.gateway.proxies import detour_error
from sparewatt.gateway.request_log import CLIENT_LEFT, Request, log_finished
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.straight import Departures, Straight
from sparewatt.inference.metering.service import RunningTab
from sparewatt.protocol.openai import error_body

STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
_COUNTED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"})
"""Errors of requests for answers are counted, also of those that never became one."""
_log = Log("sparewatt.gateway")
_rng = SystemRng()
_dates = Dates()
_tasks: set[asyncio.Task[None]] = set()


class Endpoint(NamedTuple):
    """One that models answer, and how its bodies are read."""

    path: str
    read: Callable[[bytes], Call]


class Wire(Protocol):
    """The connection, as an exchange sees it."""

    peer: str
    is_paused: bool
    """Whether the client does not take what it is sent."""
    departures: Departures

    def write(self, data: bytes) -> None: ...

    def writer(self) -> Callable[[bytes], None] | None:
        """What `write` calls, as long as the client is there."""
        ...

    def answered(self, *, closes: bool) -> None: ...


class Exchange:
    """Implements Sink."""

    __slots__ = (
        "_asked", "_body", "_charge", "_code", "_echo", "_errand", "_failure", "_has_head", "_head", "_headers",
        "_is_beginning", "_is_chunked", "_is_over", "_match_id", "_over", "_reshape", "_silent_since_s",
        "_status", "_straight", "_straight_at_s", "_streams", "_task", "_untaken_bytes", "_wire", "caller", "endpoint",
    )  # fmt: skip

    def __init__(
        self, services: Services, wire: Wire, head: Head, endpoint: Endpoint, caller: Caller | None = None
    ) -> None:
        """`caller`: who was let in with the same head before."""
        self._wire = wire
        self._head = head
        self.endpoint = endpoint
        self._asked = Asked(
            services,
            id_=new_id("req", rng=_rng),
            method="POST",
            path=endpoint.path,
            headers=head.headers,
            peer=wire.peer,
        )
        self._is_chunked = head.version == "1.1"
        """Whether the client knows how a stream ends; an older one takes the end of the connection for it."""
        self._streams = False
        self._echo: Echo | None = None
        self.caller = caller
        """Who asks, once that is known."""
        self._failure: Exception | None = None
        """What is wrong by the head alone; told when the body has been read."""
        self._match_id: MatchId | None = None
        self._charge: Charge | None = None
        """What it was charged at first, until that is settled."""
        self._reshape: Callable[[bytes], bytes] | None = None
        self._errand: Errand[Exchange] | None = None
        self._headers: Mapping[str, str] = {}
        self._body: list[bytes] = []
        self._has_head = False
        self._status = 0
        self._code: str | None = None
        self._is_beginning = False
        self._is_over = False
        self._untaken_bytes = 0
        self._silent_since_s = 0.0
        self._straight: Straight | None = None
        self._straight_at_s = 0.0
        """When somebody last wrote there, as of the last look."""
        self._task: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] | None = None

    # what the connection calls

    @property
    def may_refuse(self) -> bool:
        """Whether nothing was written yet."""
        return not self._has_head and not self._is_over

    def enter(self) -> bool:
        """By the head alone: whether the body is worth reading."""
        try:
            self._refuse_detour()
            caller = self.caller
            self.caller = enter_here(self._asked) if caller is None else enter_again(self._asked, caller)
        except Exception as error:  # noqa: BLE001 (told to the client)
            self._failure = error
        return self._failure is None

    def go(self, body: bytes) -> None:
        """All of the request is here."""
        self._silent_since_s = monotonic()
        if self._failure is not None:
            self.refuse(self._failure)
        elif self.caller is None or "idempotency-key" in self._head.headers:
            self._spawn(self._go_slowly(body))
        else:
            self._serve(self.caller, body)

    def leave(self) -> None:
        """The client is gone."""
        if not self._is_over:
            if self._errand is not None:
                self._errand.cancel()
            self._end()
        if self._task is not None:
            self._task.cancel()

    def held_up(self) -> None:
        """The client does not take what is written, until `taken`."""
        if self._straight is not None:
            self._straight.is_open = False

    def taken(self) -> None:
        """The client has taken what was written."""
        n_bytes, self._untaken_bytes = self._untaken_bytes, 0
        straight = self._straight
        if straight is not None:
            n_bytes += straight.untaken_bytes
            straight.untaken_bytes = 0
            straight.is_open = True
        if n_bytes and self._errand is not None:
            self._errand.consumed(n_bytes)

    def look(self, now_s: float, patience: Patience) -> None:
        """A silence that is too long is broken: first by the head, so that the client knows it is being served."""
        if self._match_id is None or not self._streams or self._is_over or self._wire.is_paused:
            return
        straight = self._straight
        if straight is not None and straight.at_s != self._straight_at_s:
            self._straight_at_s, self._silent_since_s = straight.at_s, now_s
        if now_s - self._silent_since_s >= patience.keep_alive_s:
            self._silent_since_s = now_s
            if not self._has_head:
                self._headers = {"x-sparewatt-match-id": self._match_id}
                self._open_stream()
            else:
                self._write_chunk(KEEP_ALIVE)

    def refuse(self, error: Exception) -> None:
        """Answer with an error; nothing was written yet."""
        if isinstance(error, SparewattError):
            self._reply_error(error, error_body(error), error_headers(error))
            return
        _log.crash("request_crashed", request=self._asked.id, route=self._asked.path)
        broken = Internal(f"Something broke here. Please report it with the id {self._asked.id}.")
        self._reply_error(broken, error_body(broken), error_headers(broken))

    # Sink

    def start(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def data(self, data: bytes) -> None:
        if not self._streams:
            self._body.append(data)
            return
        if not self._has_head:
            self._open_stream()
        wire, errand = self._wire, self._errand
        if self._echo is None and self._is_chunked:
            self._silent_since_s = monotonic()
            self._write(CHUNK % (len(data), data))
        else:
            self._write_chunk(data if self._echo is None else self._echo.feed(data))
        if wire.is_paused or errand is None:
            self._untaken_bytes += len(data)
        elif errand.run is not None:
            errand.run.consumed(len(data))

    def straight(self) -> Straight | None:
        """For a stream in chunks, whose pieces are written as they are."""
        if self._straight is None and self._has_head and self._is_chunked and self._streams and self._echo is None:
            write = self._wire.writer()
            if write is not None and self._errand is not None:
                self._straight = Straight(write, CHUNK, self._wire.departures, is_open=not self._wire.is_paused)
        return self._straight

    def finish(self) -> None:
        if self._streams:
            self._close_stream()
        else:
            self._reply_whole()

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None:
        if self._has_head:  # it went out early: the error can only be the last event
            self._write_chunk(b"data: " + msgspec.json.encode(error_body(error)) + b"\n\n")
            self._close_stream()
        elif self._is_beginning:  # where in line it would have stood is known in a moment
            self._failure, self._headers = error, headers
        elif self._errand is not None:
            body, said = refusal_of(self._errand, error, headers)
            self._reply_error(error, body, said)

    # inside

    def _refuse_detour(self) -> None:
        settings = self._asked.services.settings
        if settings.behind_proxy:
            error = detour_error(self._asked.peer, self._head.headers, settings)
            if error is not None:
                raise error

    def _serve(self, caller: Caller, body: bytes) -> None:
        """Whatever is wrong is told to the client."""
        try:
            call = self.endpoint.read(body)
            self._streams, self._echo = call.stream, call.echo
            self._reshape = call.reshape
            plan = Plan(self._asked, caller, call)
            self._match_id, self._charge = plan.match.id, plan.charge
            tab = plan.open_tab_here()
            if tab is None and plan.price is not None:
                self._spawn(self._wait_for_credits(plan))
            else:
                self._send_off(plan, tab)
        except Exception as error:  # noqa: BLE001 (a process boundary)
            self.refuse(error)

    def _send_off(self, plan: Plan, tab: RunningTab | None) -> None:
        """The sink may hear of the reply, or of its failure, before this returns."""
        errand = self._errand = plan.errand(tab, self)
        self._is_beginning = True
        errand.begin()
        self._is_beginning = False
        if self._failure is not None and isinstance(self._failure, SparewattError):
            self.fail(self._failure, self._headers)

    async def _wait_for_credits(self, plan: Plan) -> None:
        tab = await plan.open_tab()
        if self._is_over:
            if tab is not None:
                tab.drop()
        else:
            self._send_off(plan, tab)

    async def _go_slowly(self, body: bytes) -> None:
        caller = self.caller or await enter(self._asked)
        name = key_of(self._head.headers)
        if name is None:
            self._serve(caller, body)
            return
        answers, repeats = self._asked.services.answers, Repeats(self._asked, caller, name, body)

        async def produce() -> Made:
            self._over = asyncio.get_running_loop().create_future()
            self._serve(caller, body)
            await self._over
            return self._made()

        found = await once(
            answers,
            repeats.which,
            repeats.digest,
            produce,
            made=lambda made: made,
            on_repeat=repeats.charge,
            now_s=repeats.now_s,
        )
        if isinstance(found, Kept):
            self._reply(200, found.body, found.again())

    def _made(self) -> Made:
        is_whole = self._status == 200 and bool(self._body)
        return Made(self._status == 200, kept(b"".join(self._body), self._headers) if is_whole else None)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._task = asyncio.get_running_loop().create_task(self._told(work))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _told(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 (a process boundary)
            if not self._is_over and not self._has_head:
                self.refuse(error)

    # writing

    def _open_stream(self) -> None:
        errand = self._errand
        headers = STREAM_HEADERS | (reply_headers(errand, self._headers) if errand is not None else dict(self._headers))
        self._has_head, self._status = True, 200
        framing = "transfer-encoding: chunked\r\n" if self._is_chunked else ""
        self._wire.write(head_bytes(200, headers, framing + self._ending(), self._own_lines()))

    def _write_chunk(self, data: bytes) -> None:
        if data:
            self._silent_since_s = monotonic()
            self._write(chunk_bytes(data) if self._is_chunked else data)

    def _write(self, data: bytes) -> None:
        """After what went straight."""
        if self._straight is not None:
            data = self._straight.recall() + data
        self._wire.write(data)

    def _close_stream(self) -> None:
        if not self._has_head:
            self._open_stream()
        if self._echo is not None:
            self._write_chunk(self._echo.rest())
        if self._is_chunked:
            self._write(LAST_CHUNK)
        self._end()
        self._wire.answered(closes=not self._head.keep_alive or not self._is_chunked)

    def _reply_whole(self) -> None:
        errand, body = self._errand, b"".join(self._body)
        headers = reply_headers(errand, self._headers) if errand is not None else dict(self._headers)
        if self._reshape is not None:
            try:
                body = self._reshape(body)
            except ValueError as error:
                failed = JobFailed(f"The node's answer cannot be read: {error}.")
                self._reply_error(failed, error_body(failed), {**error_headers(failed), **headers})
                return
        self._body, self._headers = [body], headers
        self._reply(200, body, headers)

    def _reply_error(self, error: SparewattError, body: Mapping[str, object], headers: Mapping[str, str]) -> None:
        self._asked.services.history.tally.note_error(error.code)
        self._code = error.code
        said = {name: value for name, value in headers.items() if name != "content-type"}
        self._reply(error.status, msgspec.json.encode(body), {"content-type": "application/json", **said})

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if self._is_over:
            return
        self._has_head, self._status = True, status
        self._settle()  # the reply says what is left
        framing = f"content-length: {len(body)}\r\n" + self._ending()
        self._wire.write(head_bytes(status, headers, framing, self._own_lines()) + body)
        self._end()
        self._wire.answered(closes=not self._head.keep_alive)

    def _own_lines(self) -> str:
        asked = self._asked
        if "origin" not in asked.headers:
            return own_lines(asked)
        return own_lines(asked) + header_lines(cors_headers(asked.path, asked.headers))

    def _ending(self) -> str:
        head, date = self._head, _dates.line()
        if not head.keep_alive or (self._status == 200 and self._streams and not self._is_chunked):
            return "connection: close\r\n" + date
        return date if self._is_chunked else "connection: keep-alive\r\n" + date

    def _settle(self) -> None:
        """What the request was charged at first was a guess."""
        errand, charge = self._errand, self._charge
        if charge is not None:
            self._charge = None
            charge.settle(errand.used_tokens() if errand is not None else 0)

    def _log(self) -> None:
        match_id, services = self._match_id, self._asked.services
        record = services.dispatcher.record(match_id) if match_id is not None else None
        took_s = services.clock.now_s() - self._asked.began_s
        log_finished(
            Request(self._asked.id, f"POST {self._asked.path}", self._status or CLIENT_LEFT, took_s, self._code), record
        )

    def _end(self) -> None:
        """Over, however. The errand holds this sink, and so does the trace of a refusal: let go of, all are freed here
        and not by the collector, which would hold everybody up for 20 ms.
        """
        self._is_over = True
        self._settle()
        self._errand = self._failure = None
        if self._straight is not None:
            self._straight.recall()  # for nobody: the client is gone
            self._straight = None
        if self._asked.services.settings.request_log:
            asyncio.get_running_loop().call_soon(self._log)  # when the job is over as well
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


def refused_early(error: SparewattError, head: Head | None, services: Services) -> bytes:
    """Told to who sent something that is not served, or is no request at all. Counted and logged as any other."""
    request_id = new_id("req", rng=_rng)
    path = head.path if head is not None else "unknown"
    if path in _COUNTED:
        services.history.tally.note_error(error.code)
    if services.settings.request_log:
        method = head.method.decode("latin-1")[:20] if head is not None else "?"
        route = path if path in _COUNTED else "unknown"
        log_finished(Request(request_id, f"{method} {route}", error.status, 0.0, error.code), None)
    return refusal_bytes(error, request_id, cors_headers(path, head.headers) if head is not None else {})


def refusal_bytes(error: SparewattError, request_id: str = "", more: Mapping[str, str] | None = None) -> bytes:
    body = msgspec.json.encode(error_body(error))
    headers = {
        "content-type": "application/json",
        "server": SERVER,
        "x-request-id": request_id or new_id("req", rng=_rng),
        **error_headers(error),
        **(more or {}),
    }
    framing = f"content-length: {len(body)}\r\nconnection: close\r\n{_dates.line()}"
    return head_bytes(error.status, headers, framing) + body
