"""One client's connection: requests read one after another, each answered in its turn.

A `Turn` begins when its head is there. What models answer becomes an `Exchange`; the rest goes to aiohttp's `Guest`.
Requests that come before the one ahead is answered wait, few and small; whoever sends more is not read for a while.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from time import monotonic
from typing import cast

import httptools

from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    BodyTooSlow,
    HeadTooLarge,
    QueueFull,
    RequestTooSlow,
    SparewattError,
)
from sparewatt.core.limits import (
    BODIES_BYTES_MAX,
    BODY_CROWDED_BYTES_MIN,
    HEAD_BYTES_MAX,
    HEAD_FIELDS_MAX,
    LINGER_BYTES_MAX,
    LINGER_S,
    PIPELINED_BYTES_MAX,
    PIPELINED_MAX,
    READ_PER_TURN_BYTES,
    REQUEST_BODY_BYTES_MAX,
    STRAY_BYTES_MAX,
)
from sparewatt.core.log import Log
from sparewatt.gateway.front.doorkeeper import Doorkeeper
from sparewatt.gateway.front.exchange import Endpoint, Exchange, refusal_bytes, refused_early
from sparewatt.gateway.front.guest import Guest
from sparewatt.gateway.front.head import Head, fault_of, head_of, joined, without_upgrade
from sparewatt.gateway.front.known import KnownHead, known_head
from sparewatt.gateway.front.patience import Patience
from sparewatt.gateway.front.turn import Turn
from sparewatt.gateway.front.writing import CONTINUE, chunk_bytes
from sparewatt.gateway.proxies import detour_error
from sparewatt.protocol.crowding import Crowd

WRAPPING_MAX = 8
"""Bytes on the wire for each of a body's: chunks of a single byte take six."""
_RESET = struct.pack("ii", 1, 0)
"""Closing forgets what was not sent."""
_TOO_LARGE = f"The body is larger than {REQUEST_BODY_BYTES_MAX >> 20} MiB."
_log = Log("sparewatt.gateway")


class Connection(asyncio.Protocol):
    """Also what llhttp calls."""

    __slots__ = (
        "_doorkeeper", "_fed_bytes", "_fields_bytes", "_guest", "_head_bytes", "_held", "_idle_since_s", "_is_deaf",
        "_is_reading_head", "_known", "_lingered_bytes", "_lingers_since_s", "_loop", "_parser", "_paused_at_s",
        "_queued_bytes", "_raw", "_rewritten", "_target", "_transport", "_tunnel", "_turns", "_unsent_bytes",
        "departures", "is_paused", "peer",
    )  # fmt: skip

    def __init__(self, doorkeeper: Doorkeeper, loop: asyncio.AbstractEventLoop) -> None:
        self._doorkeeper = doorkeeper
        self.departures = doorkeeper.departures
        self._loop = loop
        self._parser: httptools.HttpRequestParser | None = None
        """While there is something to parse: a thousand streams that are written need none, and each is a kilobyte."""
        self._transport: asyncio.Transport | None = None
        self._turns: list[Turn] = []
        self._queued_bytes = 0
        self._held = b""
        """What was read and not looked at yet: this connection stands in line."""
        self._guest: Guest | None = None
        self._tunnel: Guest | None = None
        """Who gets every byte from now on: the connection speaks something else than HTTP."""
        self._raw: list[tuple[bytes, bytes]] = []
        self._target = b""
        self._head_bytes = 0
        self._fields_bytes = 0
        self._rewritten = b""
        """A head without its offer to speak something else than HTTP, to be read in its place."""
        self._fed_bytes = 0
        """Since the last request began, or ended."""
        self._is_deaf = False
        """Whether what comes is of no interest any more: the reply under way is the last."""
        self._is_reading_head = False
        self._known: KnownHead | None = None
        """The head of the last request that models answered."""
        self._idle_since_s = monotonic()
        self.is_paused = False
        """Whether the client does not take what it is sent."""
        self._paused_at_s = 0.0
        self._unsent_bytes = 0
        self._lingers_since_s: float | None = None
        self._lingered_bytes = 0
        self.peer = "unknown"

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else "unknown"
        if not self._doorkeeper.lets_in(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._doorkeeper.left(self)
        self._take_held()
        for turn in self._turns:
            self._forget_body(turn)
            if turn.exchange is not None:
                turn.exchange.leave()
        self._turns.clear()
        if self._guest is not None:
            self._guest.connection_lost(exc)
        self._guest = self._tunnel = None  # both call this connection, as does the parser: freed here, all are at once
        self._parser = None

    def data_received(self, data: bytes) -> None:
        known = self._known
        if known is not None and data.startswith(known.before) and self._is_between():
            body = known.body_of(data)
            if body is not None:
                if self._doorkeeper.requests.must_wait():
                    self._wait_in_line(data, known.caller.who.account_id)
                else:
                    self._ask_again(known, body)
                return
        if self._held:
            self._hold(data)
            self._pause_reading()
        elif self._is_between() and self._doorkeeper.requests.must_wait():
            self._wait_in_line(data, self.peer)
        else:
            self._receive(data)

    def eof_received(self) -> bool:
        """A client that says no more wants no more: what runs for it is stopped when the socket closes, now.

        Many that leave at once go one after another; TLS closes by itself.
        """
        if self._transport is None or self._transport.get_extra_info("sslcontext") is not None:
            return False
        self._doorkeeper.leavers.wait(self.peer, self.close)
        return True

    def pause_writing(self) -> None:
        self.is_paused, self._paused_at_s = True, monotonic()
        self._unsent_bytes = self._buffered()
        if self._guest is not None:
            self._guest.pause_writing()
        if self._turns and self._turns[0].exchange is not None:
            self._turns[0].exchange.held_up()

    def resume_writing(self) -> None:
        self.is_paused = False
        if self._guest is not None:
            self._guest.resume_writing()
        if self._turns and self._turns[0].exchange is not None:
            self._turns[0].exchange.taken()

    # what an exchange calls

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def writer(self) -> Callable[[bytes], None] | None:
        return self._transport.write if self._transport is not None else None

    def answered(self, *, closes: bool) -> None:
        """The reply of the first turn is written."""
        turn = self._turns[0] if self._turns else None
        if turn is None or self._transport is None:
            return
        if closes or not turn.is_complete:
            self._linger()
        else:
            self._next()

    def abort(self) -> None:
        """The client is stuck: what is queued for it would wait for ever, here and in the kernel."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    # what the server calls

    @property
    def is_busy(self) -> bool:
        """Whether a reply is under way."""
        return bool(self._turns or self._held) and self._tunnel is None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def look(self, now_s: float, patience: Patience) -> bool:
        """Now and then: whether somebody has waited for too long, and was let go."""
        if self.is_paused and self._is_stuck(now_s, patience):
            self.abort()
            return True
        if self._lingers_since_s is not None:
            return self._look_lingering(now_s)
        if self._turns:
            return self._look_at(self._turns[0], now_s, patience)
        return self._tunnel is None and not self._held and self._look_idle(now_s, patience)

    def _look_lingering(self, now_s: float) -> bool:
        is_over = self._lingers_since_s is not None and now_s - self._lingers_since_s > LINGER_S
        if is_over:
            self.close()
        return is_over

    def _look_at(self, turn: Turn, now_s: float, patience: Patience) -> bool:
        if not turn.is_complete and now_s - turn.since_s > patience.body_s and self._tunnel is None:
            self._refuse(BodyTooSlow(f"The body was not here after {patience.body_s:.0f} s."))
            return True
        if turn.exchange is not None:
            turn.exchange.look(now_s, patience)
        return False

    def _look_idle(self, now_s: float, patience: Patience) -> bool:
        if self._is_reading_head and now_s - self._idle_since_s > patience.head_s:
            self._refuse(RequestTooSlow(f"The request's head was not here after {patience.head_s:.0f} s."))
            return True
        is_over = now_s - self._idle_since_s > patience.idle_s
        if is_over:
            self.close()
        return is_over

    def _is_stuck(self, now_s: float, patience: Patience) -> bool:
        """Takes nothing at all: a slow reader may be slow."""
        left = self._buffered()
        if left < self._unsent_bytes:
            self._unsent_bytes, self._paused_at_s = left, now_s
        return now_s - self._paused_at_s > patience.write_s

    def _buffered(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # reading

    def _is_between(self) -> bool:
        """Whether what comes is a new request, and the connection goes on."""
        is_open = self._tunnel is None and self._lingers_since_s is None and not self._is_deaf and not self._held
        has_room = self._doorkeeper.bodies_bytes <= BODIES_BYTES_MAX
        return is_open and has_room and not self._turns and not self._is_reading_head and not self._fed_bytes

    def _ask_again(self, known: KnownHead, body: bytes) -> None:
        """All of a request whose head is known: there is nothing to parse."""
        services = self._doorkeeper.services
        if services is None:
            return
        turn = Turn(known.head, None, since_s=monotonic())
        turn.is_complete = True
        self._turns.append(turn)
        exchange = turn.exchange = Exchange(services, self, known.head, known.endpoint, known.caller)
        exchange.enter()
        known.caller = exchange.caller or known.caller  # another, if the key has changed
        exchange.go(body)

    def _receive(self, data: bytes) -> None:
        """What is no request that came before."""
        if len(data) > READ_PER_TURN_BYTES and self._tunnel is None:
            self._hold(data[READ_PER_TURN_BYTES:])
            data = data[:READ_PER_TURN_BYTES]
        if self._tunnel is not None:
            self._tunnel.data_received(data)
        elif self._lingers_since_s is not None:
            self._drop(data)
        elif not self._is_deaf:
            self._read(data)
        if self._held or (len(data) >= READ_PER_TURN_BYTES and self._guest is None):
            self._rest()

    def _remember(self, data: bytes) -> None:
        """The head of a request that is all of the data, and whose answer is under way."""
        turn = self._turns[0]
        exchange = turn.exchange
        if not turn.is_complete or exchange is None or exchange.caller is None:
            return
        known = known_head(data, turn.head, exchange.endpoint, exchange.caller)
        if known is not None:
            self._known = known = self._doorkeeper.known.shared(known)
            exchange.caller = known.caller
            self._parser = None

    def _read(self, data: bytes) -> None:
        was_between = self._is_between()
        if self._is_reading_head:
            self._head_bytes += len(data)
        self._fed_bytes += len(data)
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._leave_http(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            _log.crash("connection_crashed")
            self.abort()
        except httptools.HttpParserError:
            self._refuse(BadRequest("This is not a valid HTTP request."))
        self._refuse_endless()
        if was_between and len(self._turns) == 1 and not self._is_reading_head:
            self._remember(data)

    def _refuse_endless(self) -> None:
        """What goes on and on without being a request: a head, empty lines, a body that is all wrapping."""
        if self._lingers_since_s is not None or self._is_deaf:
            return
        if self._is_reading_head and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(HeadTooLarge(f"The request's head is larger than {HEAD_BYTES_MAX >> 10} KiB."))
        elif not self._is_reading_head and not self._turns and self._fed_bytes > STRAY_BYTES_MAX:
            self._refuse(BadRequest("This is not a valid HTTP request."))
        elif self._turns and self._fed_bytes > 2 * HEAD_BYTES_MAX + WRAPPING_MAX * self._turns[-1].size_bytes:
            self._refuse(BodyTooLarge("The body is nearly all wrapping."))

    def on_message_begin(self) -> None:
        if not self._turns:
            self._idle_since_s = monotonic()
        self._is_reading_head = True
        self._raw, self._target = [], b""
        self._head_bytes = self._fields_bytes = self._fed_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Also of fields behind a body in chunks: those count for nothing, and there may not be many."""
        if not self._is_reading_head:
            self._fields_bytes += len(name) + len(value)
            return
        self._fields_bytes += len(name) + len(value)
        if len(self._raw) <= HEAD_FIELDS_MAX and self._fields_bytes <= HEAD_BYTES_MAX:  # more is refused anyway
            self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_reading_head = False
        if self._lingers_since_s is not None:
            return
        parser, (headers, twice) = self._parser, joined(self._raw)
        if parser is None:
            return
        head = Head(
            parser.get_method(),
            self._target,
            parser.get_http_version(),
            parser.should_keep_alive(),
            self._raw,
            headers,
        )
        if "upgrade" in headers and parser.should_upgrade() and not head.is_link:
            self._rewritten = without_upgrade(head)
            return
        size, self._fields_bytes = self._fields_bytes + len(self._target), 0
        fault = fault_of(head, twice=twice, size_bytes=size)
        turn = Turn(head._replace(raw=()), fault, since_s=monotonic())
        self._raw = []
        self._turns.append(turn)
        if len(self._turns) == 1:
            self._begin(turn)
        elif len(self._turns) > PIPELINED_MAX:
            self._pause_reading()

    def on_body(self, data: bytes) -> None:
        if self._lingers_since_s is not None or not self._turns:
            return
        turn = self._turns[-1]
        turn.size_bytes += len(data)
        if turn.is_guests and self._guest is not None:
            self._guest.data_received(chunk_bytes(data) if turn.head.is_chunked else data)
        elif turn.size_bytes > REQUEST_BODY_BYTES_MAX:
            self._refuse_body(turn, BodyTooLarge(_TOO_LARGE))
        elif turn.fault is None:
            turn.body.append(data)
            self._doorkeeper.bodies_bytes += len(data)
            self._count_queued(turn, len(data))
            if turn.size_bytes >= BODY_CROWDED_BYTES_MIN:
                self._refuse_crowd(turn, data)

    def _refuse_crowd(self, turn: Turn, data: bytes) -> None:
        """A body of very many small values is refused before all of it is here."""
        if turn.crowd is None:
            turn.crowd, data = Crowd(), b"".join(turn.body)
        try:
            turn.crowd.refuse(data)
        except BodyTooLarge as error:
            self._refuse_body(turn, error)

    def _refuse_body(self, turn: Turn, fault: SparewattError) -> None:
        turn.fault = fault
        self._forget_body(turn)
        if turn is self._turns[0]:
            self._refuse(fault)

    def on_message_complete(self) -> None:
        if self._lingers_since_s is not None or not self._turns or self._rewritten:
            return
        turn = self._turns[-1]
        self._fed_bytes = 0
        if self._fields_bytes > HEAD_BYTES_MAX and turn.fault is None:
            self._refuse(HeadTooLarge(f"What follows the body is larger than {HEAD_BYTES_MAX >> 10} KiB."))
            return
        turn.is_complete = True
        if turn is not self._turns[0]:
            return
        if turn.exchange is not None:
            self._go(turn, turn.exchange)
        elif turn.is_guests and self._guest is not None and turn.head.is_chunked:
            self._guest.data_received(b"0\r\n\r\n")

    def _count_queued(self, turn: Turn, n_bytes: int) -> None:
        if turn is not self._turns[0]:
            self._queued_bytes += n_bytes
            if self._queued_bytes > PIPELINED_BYTES_MAX:
                self._pause_reading()

    # standing in line

    def _wait_in_line(self, data: bytes, whose: str) -> None:
        """A request that came late in a turn. A customer's share is its own; who is not known yet shares an address."""
        self._hold(data)
        self._doorkeeper.requests.wait(whose, self._begin_late)

    def _begin_late(self) -> None:
        data, known = self._take_held(), self._known
        if self._is_gone():
            return
        body = known.body_of(data) if known is not None and data.startswith(known.before) else None
        if known is not None and body is not None and self._is_between():
            self._ask_again(known, body)
        elif data:
            self._receive(data)
        self._resume_reading()

    def _rest(self) -> None:
        """One client's upload is read a piece at a time, so that nobody waits for all of what its socket holds."""
        if self._transport is not None and (self._held or self._transport.is_reading()):
            self._transport.pause_reading()
            self._doorkeeper.uploads.wait(self, self._read_on)

    def _read_on(self) -> None:
        data = self._take_held()
        if self._is_gone():
            return
        if data:
            self._receive(data)
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Unless it stands in line again, or somebody has enough."""
        transport, is_full = self._transport, self._queued_bytes > PIPELINED_BYTES_MAX
        if transport is None or is_full or len(self._turns) > PIPELINED_MAX or self._held:
            return
        if self._guest is not None and self._guest.is_full:
            return
        if not transport.is_closing() and not transport.is_reading():
            transport.resume_reading()

    def _hold(self, data: bytes) -> None:
        self._held += data
        self._doorkeeper.bodies_bytes += len(data)

    def _take_held(self) -> bytes:
        data, self._held = self._held, b""
        self._doorkeeper.bodies_bytes -= len(data)
        return data

    def _is_gone(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _pause_reading(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _drop(self, data: bytes) -> None:
        """Read and forget: a client that is still sending would not hear the answer if we hung up on it."""
        self._lingered_bytes += len(data)
        if self._lingered_bytes > LINGER_BYTES_MAX:
            self.close()

    def _leave_http(self, rest: bytes) -> None:
        """A node's link. Any other offer to speak something else is passed over: read again as if it were not there."""
        if self._rewritten:
            again, self._rewritten = self._rewritten + rest, b""
            self._parser = httptools.HttpRequestParser(self)
            self._read(again)
        elif self._guest is not None and self._turns and self._turns[0].is_guests:
            self._tunnel = self._guest
            if rest:
                self._guest.data_received(rest)
        elif self._turns and self._turns[0].fault is None:
            self._hand_over(self._turns[0].head, rest)

    def _hand_over(self, head: Head, rest: bytes) -> None:
        """From here on the socket is a link, and this connection has nothing more to do with it."""
        transport, services = self._transport, self._doorkeeper.services
        if transport is None or services is None:
            return
        self._transport = None
        self._turns.clear()
        self._doorkeeper.left(self)
        if self._guest is not None:
            self._guest.leave()
        services.desk.adopt(transport, head_of(head, head.headers) + rest)

    # answering

    def _begin(self, turn: Turn) -> None:
        """The first of the turns is next."""
        head, services = turn.head, self._doorkeeper.services
        path = head.path
        read = self._doorkeeper.hot.get(path) if head.method == b"POST" and services is not None else None
        if turn.fault is None and services is not None and services.settings.behind_proxy and head.is_link:
            turn.fault = detour_error(self.peer, head.headers, services.settings)
        if turn.fault is None and (head.length or 0) > REQUEST_BODY_BYTES_MAX:
            turn.fault = BodyTooLarge(_TOO_LARGE)
        elif self._doorkeeper.bodies_bytes > BODIES_BYTES_MAX:
            turn.fault = QueueFull("Too many large requests are being read here.", retry_after_s=2.0)
        if turn.fault is not None:
            self._refuse(turn.fault)
        elif self._doorkeeper.adopts(head):
            return  # when the parser has let go of what follows
        elif read is None or services is None:
            self._ask_guest(turn)
        else:
            exchange = turn.exchange = Exchange(services, self, head, Endpoint(path, read))
            is_welcome = exchange.enter()
            if turn.is_complete:
                self._go(turn, exchange)
            elif head.is_expecting and is_welcome:
                self.write(CONTINUE)
            elif head.is_expecting:
                exchange.go(b"")

    def _go(self, turn: Turn, exchange: Exchange) -> None:
        body = turn.body[0] if len(turn.body) == 1 else b"".join(turn.body)
        self._forget_body(turn)
        exchange.go(body)

    def _forget_body(self, turn: Turn) -> None:
        if turn.body:
            self._doorkeeper.bodies_bytes -= sum(map(len, turn.body))
            turn.body = []

    def _ask_guest(self, turn: Turn) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._guest is None:
            self._guest = self._doorkeeper.make_guest(self._guest_answered)
            self._guest.connection_made(transport)
            if self.is_paused:
                self._guest.pause_writing()
        turn.is_guests = True
        self._guest.ask(turn.head)
        for piece in turn.body:
            self._guest.data_received(chunk_bytes(piece) if turn.head.is_chunked else piece)
        self._forget_body(turn)
        if turn.is_complete and turn.head.is_chunked:
            self._guest.data_received(b"0\r\n\r\n")

    def _guest_answered(self) -> None:
        if self._tunnel is not None:
            self.close()
        elif self._turns and self._turns[0].is_guests and self._turns[0].is_complete:
            self._next()
        elif self._turns and self._turns[0].is_guests:
            self._linger()

    def _next(self) -> None:
        turn = self._turns.pop(0)
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not turn.head.keep_alive or self._doorkeeper.is_closing:
            transport.close()
            return
        self._idle_since_s = monotonic()
        if self._turns:
            self._loop.call_soon(self._begin_next)
        elif not transport.is_reading():
            self._queued_bytes = 0
            transport.resume_reading()

    def _begin_next(self) -> None:
        if self._turns and self._turns[0].exchange is None and not self._turns[0].is_guests:
            self._queued_bytes -= sum(map(len, self._turns[0].body))
            self._begin(self._turns[0])

    def _refuse(self, error: SparewattError) -> None:
        """Answer what cannot be served, whatever more comes, and close. Behind others it waits until they are done."""
        first = self._turns[0] if self._turns else None
        if self._lingers_since_s is not None:
            return  # the last reply is out: what is wrong with the rest is nobody's business
        if first is None or (first.exchange is None and not first.is_guests):
            services, head = self._doorkeeper.services, first.head if first is not None else None
            self.write(refused_early(error, head, services) if services is not None else refusal_bytes(error))
            self._linger()
        elif first.exchange is not None and not first.is_complete and first.exchange.may_refuse:
            first.exchange.refuse(error)
        elif first.is_complete:
            first.head = first.head._replace(keep_alive=False)  # its reply is under way, and the last
            self._is_deaf = True
        else:
            self.close()

    def _linger(self) -> None:
        """The last reply is out. What the client still sends is read and dropped for a moment, then it is over."""
        self._lingers_since_s = monotonic()
        transport = self._transport
        if transport is not None and (not self._turns or self._turns[-1].is_complete):
            transport.close()
        elif transport is not None and not transport.is_reading():
            transport.resume_reading()
        for turn in self._turns:
            self._forget_body(turn)
        self._turns.clear()
