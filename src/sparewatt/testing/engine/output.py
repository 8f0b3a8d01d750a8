"""Writes a reply to the connection, streamed or whole, and injects each kind of fault there."""

from __future__ import annotations

import asyncio
import os
from typing import assert_never

from aiohttp import web

from sparewatt.core.errors import InternalError
from sparewatt.testing.engine.replies import EngineReply, encode, error_body, error_object, sse
from sparewatt.testing.engine.settings import Fault

GARBAGE = b"<html><body>\xff\xfe 502 not what you asked for</body>"
GARBAGE_EVENT = b'data: {"choices": [{"delta": {"content": "\xff\n\n'
_STREAM_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_INJECTED = InternalError("A fault was injected here.")


class InjectedFault(Exception):
    """Ends a generation by an injected fault; `response` is what aiohttp returns for it."""

    def __init__(self, response: web.StreamResponse) -> None:
        super().__init__()
        self.response = response


class Output:
    """One JSON body after the last token."""

    def __init__(self, request: web.Request) -> None:
        self.response: web.StreamResponse = web.Response()
        self.request = request

    async def open(self, reply: EngineReply) -> None:
        """Nothing is sent before `close`."""

    async def emit(self, reply: EngineReply, steps: range) -> None:
        """The plan has the tokens; `close` sends them."""

    async def close(self, reply: EngineReply) -> web.StreamResponse:
        return json_response(reply.whole())

    async def fail(self, fault: Fault) -> web.StreamResponse:
        match fault.kind:
            case "error_event":
                return json_response(error_body(_INJECTED), status=_INJECTED.status)
            case "garbage":
                return web.Response(body=GARBAGE, content_type="application/json")
            case _:
                await break_off(self.request, fault)
                return self.response


class StreamedOutput(Output):
    """Server-sent events, one per token."""

    def __init__(self, request: web.Request) -> None:
        super().__init__(request)
        self.response = web.StreamResponse(headers=_STREAM_HEADERS)

    async def open(self, reply: EngineReply) -> None:
        await self.response.prepare(self.request)
        await self._write(reply.opening())

    async def emit(self, reply: EngineReply, steps: range) -> None:
        await self._write(b"".join(reply.step(i) for i in steps))

    async def close(self, reply: EngineReply) -> web.StreamResponse:
        await self._write(reply.closing())
        return self.response

    async def fail(self, fault: Fault) -> web.StreamResponse:
        match fault.kind:
            case "error_event":
                await self._write(sse(error_body(_INJECTED)))
            case "garbage":
                await self._write(GARBAGE_EVENT)
            case _:
                await break_off(self.request, fault)
        return self.response

    async def _write(self, data: bytes) -> None:
        if data:
            await self.response.write(data)


def json_response(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=encode(value), status=status, content_type="application/json")


def is_immediate(fault: Fault) -> bool:
    """Whether the fault comes before the engine does any work."""
    match fault.kind:
        case "status" | "drop_before_head":
            return True
        case "garbage" | "exit":
            return fault.after_tokens == 0
        case "drop_after_tokens" | "stall_after_tokens" | "error_event":
            return False
        case _:
            assert_never(fault.kind)


async def fail_at_once(request: web.Request, fault: Fault) -> web.StreamResponse:
    match fault.kind:
        case "status":
            body = error_object(_INJECTED.message, _INJECTED.kind, code="injected_fault")
            return json_response(body, status=fault.status)
        case "garbage":
            return web.Response(body=GARBAGE, content_type="text/html")
        case _:
            await break_off(request, fault)
    return web.Response()


async def break_off(request: web.Request, fault: Fault) -> None:
    """End the process, stall until the client disconnects, or close the connection with the reply unfinished."""
    if fault.kind == "exit":
        os._exit(1)
    if fault.kind == "stall_after_tokens":
        await asyncio.Event().wait()
    if request.transport is not None:
        request.transport.close()
