"""GET /v1/responses as a WebSocket: many responses over one socket, one after another, with the events of streams.

Each `response.create` is a request of its own: its key is looked up again, it is charged, routed and billed as a POST
is. A response that is not kept can be continued on its own socket, which remembers the last one. Programs only: a
browser's session cannot open it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.responses.drafts import ResponseDraft, ResponseDrafts
from sparewatt.api.responses.response_socket import ResponseSocket
from sparewatt.api.responses.submissions import ResponseCaller, ResponseSubmissions
from sparewatt.api.responses.writer import ResponseWriter
from sparewatt.core.clock import Clock
from sparewatt.core.errors import (
    BadRequest,
    InternalError,
    InvalidField,
    NotAuthenticated,
    SparewattError,
)
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.core.log import Logger
from sparewatt.edge.auth import Authenticator, authorization_of
from sparewatt.edge.middleware import ErrorCounter, context_of
from sparewatt.inference.responses.socket_budget import SocketBudget, SocketMemory
from sparewatt.protocol.responses.request import Json, ParsedResponsesRequest
from sparewatt.protocol.responses.socket_events import error_event, parse_create, read_event

_GOING_AWAY = 1001
_encode = msgspec.json.Encoder().encode
_log = Logger("sparewatt.gateway")


@dataclass(slots=True, kw_only=True)
class ResponseSocketEndpoints:
    submissions: ResponseSubmissions
    drafts: ResponseDrafts
    auth: Authenticator
    errors: ErrorCounter
    clock: Clock
    budget: SocketBudget = field(default_factory=SocketBudget)

    @endpoint("GET /v1/responses", access="identified", status=101, content_type="application/json")
    async def open_response_socket(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Open a WebSocket for responses: send `response.create`, receive the events of a stream."""
        if principal.key is None:
            raise NotAuthenticated("Open this socket with an API key: a browser's session cannot.")
        if request.headers.get("upgrade", "").lower() != "websocket":
            raise BadRequest(
                "Responses are not listed. POST a request here, or open a WebSocket with the headers of an upgrade."
            )
        self.submissions.service.options(principal, request.headers)
        with self.budget.opened(principal.key_id) as memory:
            ws = web.WebSocketResponse(max_msg_size=REQUEST_BODY_BYTES_MAX, compress=False)
            await ws.prepare(request)
            socket = ResponseSocket(ws)
            try:
                await socket.serve(lambda text: self._answer(socket, request, memory, text))
            except (ConnectionError, TimeoutError):
                """The client has left, or does not read."""
            await ws.close(code=_GOING_AWAY)
        return ws

    async def _answer(self, socket: ResponseSocket, request: web.Request, memory: SocketMemory, text: str) -> None:
        """One message. Whatever is wrong with it is told on the socket, which stays open."""
        try:
            await self._respond(socket, request, memory, text)
        except SparewattError as error:
            self.errors.count_error(error.code)
            await socket.send([error_event(error)])
        except (TimeoutError, ConnectionError):
            raise  # the client is gone, or does not read
        except Exception as error:  # noqa: BLE001 (a process boundary: the client must hear of it)
            _log.crash("response_socket_crashed", error)
            await socket.send([error_event(InternalError("Something broke here. Try again."))])

    async def _respond(self, socket: ResponseSocket, request: web.Request, memory: SocketMemory, text: str) -> None:
        if read_event(text).type == "response.cancel":
            raise InvalidField("No such response is being written on this socket.", param="response_id")
        caller, parsed = await self._caller(request), parse_create(text)
        previous = parsed.request.previous_response_id
        history = memory.recall(previous)
        try:
            draft, writer = await self._write(socket, caller, parsed, history)
        except SparewattError:
            if history is not None:
                memory.forget()
            raise
        _remember(memory, draft, writer)

    async def _caller(self, request: web.Request) -> ResponseCaller:
        """As of now: the key may have been revoked, or its policy changed, since the socket was opened."""
        context = replace(context_of(request), began_s=self.clock.now_s())
        principal = await self.auth.identify(context)
        options = self.submissions.service.options(principal, request.headers)
        shelf = self.submissions.shelves.shelf_for(principal, authorization_of(request.headers))
        return ResponseCaller(request, context, principal, options, shelf)

    async def _write(
        self,
        socket: ResponseSocket,
        caller: ResponseCaller,
        parsed: ParsedResponsesRequest,
        history: list[Json] | None,
    ) -> tuple[ResponseDraft, ResponseWriter]:
        """Raises the error that came before the first token."""
        draft = await self.drafts.draft(caller, parsed, history=history)
        async with self.drafts.writing(caller, draft) as writer:
            await writer.submission.sink.begun()
            if (error := writer.submission.sink.error) is not None:
                raise error
            writer.has_begun = True
            with socket.writing(writer):
                await writer.begin(socket.send)
                await writer.stream(socket.send)
        return draft, writer


def _remember(memory: SocketMemory, draft: ResponseDraft, writer: ResponseWriter) -> None:
    """Only what is kept nowhere else, and can be continued: what is kept can be deleted, and is looked up."""
    response = writer.response
    if writer.is_kept or response["status"] not in ("completed", "incomplete"):
        memory.forget()
        return
    items = [*draft.conversation.items, *response["output"]]
    memory.remember(response["id"], items, n_bytes=len(_encode(items)))
