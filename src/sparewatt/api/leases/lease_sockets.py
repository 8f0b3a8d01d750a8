"""WebSockets into a lease: a command with its streams or a terminal, and a port.

A program opens them with its key. A browser cannot send one: a page of this gateway opens them with a ticket of one
use, and its Origin is checked. A session's cookie alone opens nothing.
"""

from __future__ import annotations

import asyncio
import socket as sockets
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from aiohttp import WSMsgType, web

from sparewatt.accounts.sessions import check_origin
from sparewatt.api.endpoint import endpoint
from sparewatt.api.leases.lease_logs import error_object
from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import REDEEM, RedeemReply, RedeemRequest
from sparewatt.core.errors import (
    BadRequest,
    CsrfRefused,
    InvalidField,
    LeaseNotFound,
    NotAuthenticated,
    SparewattError,
)
from sparewatt.core.ids import AccountId
from sparewatt.core.limits import KIB
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.leasing.access.lease_access import LeaseAccess, LeasePlace, error_of
from sparewatt.leasing.access.tickets import AccessTickets, process_of
from sparewatt.link.traffic import StreamOver, TrafficStream
from sparewatt.protocol.api.lease_access import STDERR_BYTE, STDOUT_BYTE, ExecRequest, SocketControl, SocketNotice
from sparewatt.protocol.link.traffic import ExecOpen, PortOpen, StreamEnd, TrafficOp

MESSAGE_BYTES_MAX = 256 * KIB
"""One message of a client: input comes in pieces."""
COMMAND_BYTES_MAX = 128 * KIB
FIRST_MESSAGE_S = 10.0
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 4}
"""A client that is gone without a word is noticed in 140 s. No pings: whoever does not read for a while is not gone."""
_T = TypeVar("_T")
_BYTES = {TrafficOp.OUT: STDOUT_BYTE, TrafficOp.ERR: STDERR_BYTE}


@dataclass(slots=True, kw_only=True)
class LeaseSocketEndpoints:
    access: LeaseAccess
    tickets: AccessTickets
    auth: Authenticator
    peers: PeerClient

    @endpoint(
        "GET /v1/leases/{lease}/exec",
        access="ticket",
        query=("ticket",),
        status=101,
        content_type="application/octet-stream",
    )
    async def open_lease_command(self, request: web.Request) -> web.StreamResponse:
        """Run a command in your lease's container: a WebSocket, with your key or with a ticket."""
        place = await self._admit(request)
        client = await _upgrade(request)
        try:
            asked = await _read_request(client)
            wanted = ExecOpen(
                order_id=place.order_id, command=asked.command, tty=asked.tty, columns=asked.columns, rows=asked.rows
            )
            async with self.access.open(place, wanted) as stream:
                await client.tell(SocketNotice(started=True))
                await client.relay(stream, marks=True)
        except SparewattError as error:
            await client.tell(SocketNotice(error=error_object(error)))
        return await client.close()

    @endpoint(
        "GET /v1/leases/{lease}/ports/{port}",
        access="ticket",
        query=("ticket",),
        status=101,
        content_type="application/octet-stream",
    )
    async def open_lease_port(self, request: web.Request) -> web.StreamResponse:
        """Connect to a port of your lease's container: a WebSocket, with your key or with a ticket."""
        place, port = await self._admit(request), _port(request)
        async with self.access.open(place, PortOpen(order_id=place.order_id, port=port)) as stream:
            client = await _upgrade(request)
            await client.relay(stream, marks=False)
        return await client.close()

    # who may

    async def _admit(self, request: web.Request) -> LeasePlace:
        """Raises NotAuthenticated, NotAllowed, CsrfRefused, LeaseNotFound, LeaseNotRunning and what tickets raise."""
        context, origin = context_of(request), request.headers.get("origin")
        check_origin(origin, ours=self.auth.origins)
        if request.headers.get("upgrade", "").lower() != "websocket" and "ticket" in request.query:
            raise BadRequest("A ticket opens a WebSocket, and this is none.")
        if (ticket := request.query.get("ticket")) is not None:
            if origin is None:
                raise CsrfRefused("A ticket is for pages of this gateway. A program sends its key.")
            return await self._admit_ticket(ticket, request.match_info["lease"])
        if "authorization" not in request.headers:
            raise NotAuthenticated("Send a key, or open this socket with a ticket: POST /v1/leases/{id}/tickets.")
        principal = await self.auth.authenticate(context, "lease")
        return await self.access.locate(principal.account_id, request.match_info["lease"])

    async def _admit_ticket(self, ticket: str, wanted: str) -> LeasePlace:
        use = await self._redeem(ticket)
        if use.account is None:
            raise NotAuthenticated("This ticket was used before, or is older than 30 s. Get another one.")
        place = await self.access.locate(AccountId(use.account), wanted)
        if place.lease_id != use.lease:
            raise LeaseNotFound("This ticket is for another lease.")
        return place

    async def _redeem(self, ticket: str) -> RedeemReply:
        number = process_of(ticket)
        if number is not None and number in self.peers.slot.others:
            return await self.peers.ask(number, REDEEM, RedeemRequest(ticket)) or RedeemReply()
        return await self._answer_redeem(RedeemRequest(ticket))

    async def _answer_redeem(self, request: RedeemRequest) -> RedeemReply:
        use = self.tickets.redeem(request.ticket)
        return RedeemReply() if use is None else RedeemReply(use.account, use.lease_id)

    def handlers(self) -> list[PeerHandler[Any, Any]]:
        return [PeerHandler(REDEEM, self._answer_redeem)]


@dataclass(slots=True, eq=False)
class _ClientSocket:
    ws: web.WebSocketResponse

    async def relay(self, stream: TrafficStream, *, marks: bool) -> None:
        """Until the stream has ended, or the client has left. `marks`: whether bytes tell stdout from stderr."""
        reading = asyncio.create_task(self._read(stream))
        try:
            while (item := await stream.receive()) is not None:
                if item.op is TrafficOp.EOF:
                    await self.tell(SocketNotice(eof=True))
                elif item.op in _BYTES:
                    await self.ws.send_bytes(_BYTES[item.op] + item.payload if marks else item.payload)
            await self.tell(_notice_of(stream.end or StreamEnd()))
        except ConnectionError:
            pass  # the client has left
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _read(self, stream: TrafficStream) -> None:
        try:
            while True:
                message = await self.ws.receive()
                if message.type is WSMsgType.BINARY:
                    await stream.send(message.data)
                elif message.type is WSMsgType.TEXT:
                    _control(stream, message.data)
                else:
                    stream.cancel()
                    return
        except StreamOver:
            return
        except BadRequest as error:
            stream.cancel(StreamEnd(code="refused", message=error.message[:200]))

    async def tell(self, notice: SocketNotice) -> None:
        """A client that has left does not hear it."""
        try:
            await self.ws.send_str(msgspec.json.encode(notice).decode())
        except ConnectionError:
            return

    async def close(self) -> web.WebSocketResponse:
        await self.ws.close()
        return self.ws


async def _upgrade(request: web.Request) -> _ClientSocket:
    if request.headers.get("upgrade", "").lower() != "websocket":
        raise BadRequest("This is a WebSocket: open it with the headers of an upgrade.")
    ws = web.WebSocketResponse(max_msg_size=MESSAGE_BYTES_MAX, compress=False)
    await ws.prepare(request)
    sock = request.transport.get_extra_info("socket") if request.transport is not None else None
    if sock is not None:
        sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
        for name, number in _KEEP_ALIVE.items():
            if hasattr(sockets, name):
                sock.setsockopt(sockets.IPPROTO_TCP, getattr(sockets, name), number)
    return _ClientSocket(ws)


async def _read_request(client: _ClientSocket) -> ExecRequest:
    """Raises BadRequest."""
    try:
        async with asyncio.timeout(FIRST_MESSAGE_S):
            message = await client.ws.receive()
    except TimeoutError:
        raise BadRequest("No command came within 10 s.") from None
    if message.type is not WSMsgType.TEXT:
        raise BadRequest("The first message is the command, as JSON text.")
    asked = _decode(message.data, ExecRequest)
    if sum(len(word.encode("utf-8", "surrogatepass")) for word in asked.command) > COMMAND_BYTES_MAX:
        raise InvalidField("The command is longer than 128 KiB. Send what is long as its input.", param="command")
    return asked


def _control(stream: TrafficStream, text: str) -> None:
    control = _decode(text, SocketControl)
    if control.resize is not None:
        stream.resize(control.resize)
    if control.eof:
        stream.send_eof()


def _decode(text: str, shape: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidField(f"This message makes no sense: {error}.") from None


def _notice_of(end: StreamEnd) -> SocketNotice:
    if (error := error_of(end)) is not None:
        return SocketNotice(error=error_object(error))
    return SocketNotice(exit_code=end.exit_code, ended=True)


def _port(request: web.Request) -> int:
    text = request.match_info["port"]
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 65_535):
        raise InvalidField("A port is a number from 1 to 65,535.", param="port")
    return int(text)
