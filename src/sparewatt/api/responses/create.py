"""POST /v1/responses: a request becomes a chat, and the chat's reply a response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from sparewatt.api.endpoint import post
from sparewatt.api.responses.draft import ResponseDraft, draft_response, id_maker
from sparewatt.api.responses.streaming import EventStream, send_log
from sparewatt.api.responses.submissions import ResponseCaller, ResponseSubmissions, answer_headers, refusal_of
from sparewatt.api.responses.writer import ResponseWriter
from sparewatt.core.clock import Clock
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import json_reply
from sparewatt.inference.responses.event_log import EventLog
from sparewatt.inference.responses.registry import ResponseRegistry
from sparewatt.protocol.api.responses import ResponseObject
from sparewatt.protocol.responses.request import ParsedResponsesRequest
from sparewatt.protocol.responses.translator import ResponseTranslator

_MATCH_HEADER = "x-sparewatt-match-id"


class ResponseEndpoints:
    def __init__(self, *, submissions: ResponseSubmissions, registry: ResponseRegistry, clock: Clock, rng: Rng) -> None:
        self._submissions = submissions
        self._registry = registry
        self._clock = clock
        self._make_id = id_maker(rng)

    @post("/v1/responses", body="ResponseRequest", reply=ResponseObject, streams=True)
    async def create_response(self, request: web.Request) -> web.StreamResponse:
        """Answer items, whole, as a stream of events, or in the background."""
        return await self._submissions.answer(request, self._create)

    async def _create(self, caller: ResponseCaller, parsed: ParsedResponsesRequest) -> web.StreamResponse:
        if parsed.request.background:
            self._registry.refuse_too_many(caller.principal.key_id)
        now = int(self._clock.unix_s())
        draft = await draft_response(parsed, caller.shelf, make_id=self._make_id, now=now)
        async with AsyncExitStack() as stack:
            writer = await stack.enter_async_context(self._writing(caller, draft))
            if draft.in_background:
                return await self._continue_in_background(caller, draft, writer, stack.pop_all())
            return await (_stream(caller, draft, writer) if draft.is_streamed else _reply_whole(draft, writer))

    @asynccontextmanager
    async def _writing(self, caller: ResponseCaller, draft: ResponseDraft) -> AsyncIterator[ResponseWriter]:
        """A writer that is registered. If the client leaves early, what was written is stored, unless nothing began."""
        registry, writer = self._registry, None
        try:
            async with self._submissions.submit(caller, draft.call) as submission:
                translator = ResponseTranslator(draft.response, new_id=self._make_id)
                key_id = caller.principal.key_id
                writer = ResponseWriter(submission, translator, key_id=key_id, shelf=draft.shelf, clock=self._clock)
                registry.add(writer)
                try:
                    yield writer
                finally:
                    registry.remove(writer)
        finally:
            if writer is not None and writer.has_begun:
                if not writer.over.is_set():
                    registry.spawn(writer.abandon())
            elif draft.shelf is not None:
                registry.spawn(draft.shelf.delete(draft.response["id"]))

    async def _continue_in_background(
        self, caller: ResponseCaller, draft: ResponseDraft, writer: ResponseWriter, stack: AsyncExitStack
    ) -> web.StreamResponse:
        """Write it to its end even if the client leaves, who can fetch it by its id. `stack` closes the writer."""
        writer.has_begun = True
        writer.log = log = EventLog()

        async def write() -> None:
            async with stack:
                try:
                    await writer.begin(log.add)
                    await writer.stream(log.add)
                finally:
                    log.close()

        self._registry.spawn(write(), key_id=caller.principal.key_id)
        headers = draft.headers() | {_MATCH_HEADER: writer.submission.match.id}
        if draft.is_streamed:
            return await send_log(caller.request, log, headers)
        status = "queued" if writer.submission.run is None else "in_progress"
        return json_reply(writer.response | {"status": status}, headers=headers)


async def _reply_whole(draft: ResponseDraft, writer: ResponseWriter) -> web.StreamResponse:
    await writer.submission.sink.begun()
    refusal = refusal_of(writer.submission)
    if refusal is not None:
        return refusal
    writer.has_begun = True
    response = await writer.whole()
    return json_reply(response, headers=_headers(draft, writer))


async def _stream(caller: ResponseCaller, draft: ResponseDraft, writer: ResponseWriter) -> web.StreamResponse:
    """An error before the first token is an HTTP error, unless that took so long that the stream was opened already."""
    stream = EventStream(caller.request)
    if not await stream.is_overdue(writer.submission.sink.begun()):
        refusal = refusal_of(writer.submission)
        if refusal is not None:
            return refusal
    writer.has_begun = True
    async with stream.opened(_headers(draft, writer)):
        await writer.begin(stream.send)
        await writer.stream(stream.send)
    return stream.response


def _headers(draft: ResponseDraft, writer: ResponseWriter) -> dict[str, str]:
    submission = writer.submission
    return {_MATCH_HEADER: submission.match.id} | answer_headers(submission) | draft.headers()
