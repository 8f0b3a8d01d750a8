"""GET /v1/leases/{lease}/logs: what a lease's program wrote, also as it comes; and tickets for a lease's sockets."""

from __future__ import annotations

import asyncio
import codecs
from dataclasses import dataclass

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, SparewattError
from sparewatt.leasing.access.lease_access import LeaseAccess, error_of
from sparewatt.leasing.access.tickets import TICKET_LIFE_S, AccessTickets
from sparewatt.link.traffic import TrafficStream
from sparewatt.protocol.api.inference import ErrorObject
from sparewatt.protocol.api.lease_access import LeaseLogPiece, LeaseTicket
from sparewatt.protocol.link.traffic import LOG_LINES_MAX, LogsOpen, TrafficOp

KEEP_ALIVE_S = 15.0
_KEEP_ALIVE = b"\n"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "x-accel-buffering": "no"}
_TYPES = {"text": "text/plain; charset=utf-8", "json": "application/x-ndjson"}


@dataclass(slots=True, kw_only=True)
class LeaseLogEndpoints:
    access: LeaseAccess
    tickets: AccessTickets
    clock: Clock

    @endpoint(
        "GET /v1/leases/{lease}/logs",
        access="lease",
        query=("follow", "tail", "format"),
        content_type="text/plain",
    )
    async def stream_lease_logs(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Stream what your lease's program wrote: the last `tail` lines, and with `follow=true` what comes.

        `format=json` has a JSON object per line, with the stream that a piece belongs to.
        """
        form = choice(request, "format", ("text", "json"))
        follow = choice(request, "follow", ("false", "true")) == "true"
        place = await self.access.locate(principal.account_id, request.match_info["lease"])
        wanted = LogsOpen(order_id=place.order_id, follow=follow, tail=_tail(request))
        async with self.access.open(place, wanted) as stream:
            response = web.StreamResponse(headers=_HEADERS | {"content-type": _TYPES[form]})
            await response.prepare(request)
            await (_send_json(response, stream) if form == "json" else _send_text(response, stream))
            if form == "text" and stream.end is not None and error_of(stream.end) is not None and request.transport:
                request.transport.abort()  # so that the client sees that it broke off
        return response

    @endpoint("POST /v1/leases/{lease}/tickets", access="lease", status=201)
    async def issue_lease_ticket(self, request: web.Request, principal: Principal) -> LeaseTicket:
        """Get a ticket for one socket of your lease, for a page that cannot send a key. Good once, for 30 s."""
        place = await self.access.locate(principal.account_id, request.match_info["lease"])
        ticket = self.tickets.issue(place.account, place.lease_id)
        return LeaseTicket(ticket, place.lease_id, self.clock.unix_s() + TICKET_LIFE_S)


def error_object(error: SparewattError) -> ErrorObject:
    return ErrorObject(message=error.message, type=error.kind, param=error.param, code=error.code)


async def _send_text(response: web.StreamResponse, stream: TrafficStream) -> None:
    while (item := await stream.receive()) is not None:
        await response.write(item.payload)


async def _send_json(response: web.StreamResponse, stream: TrafficStream) -> None:
    decoders = {op: codecs.getincrementaldecoder("utf-8")("replace") for op in (TrafficOp.OUT, TrafficOp.ERR)}
    while True:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                item = await stream.receive()
        except TimeoutError:
            await response.write(_KEEP_ALIVE)
            continue
        if item is None:
            break
        if item.op not in decoders:
            continue
        text = decoders[item.op].decode(item.payload)
        piece = LeaseLogPiece("stderr" if item.op is TrafficOp.ERR else "stdout", text)
        await response.write(msgspec.json.encode(piece) + b"\n")
    error = error_of(stream.end) if stream.end is not None else None
    if error is not None:
        await response.write(msgspec.json.encode(LeaseLogPiece(error=error_object(error))) + b"\n")


def _tail(request: web.Request) -> int:
    text = request.query.get("tail")
    if text is None:
        return LOG_LINES_MAX
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= LOG_LINES_MAX):
        raise InvalidField(f"'tail' is a number from 0 to {LOG_LINES_MAX:,}.", param="tail")
    return int(text)
