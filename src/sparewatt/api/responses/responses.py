"""POST /v1/responses: a request becomes a chat, and the chat's reply a response.

Draft → submission → `ResponseWriter` → the reply: whole, as a stream, or written on in the background.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.responses.drafts import ResponseDraft, ResponseDrafts
from sparewatt.api.responses.streaming import EventStream, is_overdue, send_log, write_sse
from sparewatt.api.responses.submissions import ResponseCaller, ResponseSubmissions, answer_headers, refusal_of
from sparewatt.api.responses.writer import ResponseWriter
from sparewatt.edge.bodies import json_reply
from sparewatt.inference.responses.event_log import EventLog
from sparewatt.inference.responses.registry import ResponseRegistry
from sparewatt.protocol.api.responses import ResponseObject
from sparewatt.protocol.responses.request import ParsedResponsesRequest

_MATCH_HEADER = "x-sparewatt-match-id"


@dataclass(slots=True, kw_only=True)
class ResponseEndpoints:
    submissions: ResponseSubmissions
    drafts: ResponseDrafts
    registry: ResponseRegistry

    @endpoint("POST /v1/responses", access="identified", body="ResponseRequest", reply=ResponseObject, streams=True)
    async def create_response(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Answer items, whole, as a stream of events, or in the background."""
        return await self.submissions.answer(request, principal, self._create)

    async def _create(self, caller: ResponseCaller, parsed: ParsedResponsesRequest) -> web.StreamResponse:
        if parsed.request.background:
            self.registry.refuse_too_many(caller.principal.key_id)
        draft = await self.drafts.draft(caller, parsed)
        async with AsyncExitStack() as stack:
            writer = await stack.enter_async_context(self.drafts.writing(caller, draft))
            if draft.in_background:
                return await self._continue_in_background(caller, draft, writer, stack.pop_all())
            return await (_stream(caller, draft, writer) if draft.is_streamed else _reply_whole(draft, writer))

    async def _continue_in_background(
        self, caller: ResponseCaller, draft: ResponseDraft, writer: ResponseWriter, stack: AsyncExitStack
    ) -> web.StreamResponse:
        """Write it to its end even if the client leaves: it can be fetched by its id. `stack` closes the writer."""
        writer.has_begun = True
        writer.log = log = EventLog()

        async def write() -> None:
            async with stack:
                try:
                    await write_sse(writer, log.add)
                finally:
                    log.close()

        self.registry.spawn(write(), key_id=caller.principal.key_id)
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
    if not await is_overdue(writer.submission.sink.begun()):
        refusal = refusal_of(writer.submission)
        if refusal is not None:
            return refusal
    writer.has_begun = True
    stream = EventStream(caller.request, _headers(draft, writer))
    async with stream.opened():
        await write_sse(writer, stream.send)
    return stream.response


def _headers(draft: ResponseDraft, writer: ResponseWriter) -> dict[str, str]:
    submission = writer.submission
    return {_MATCH_HEADER: submission.match.id} | answer_headers(submission) | draft.headers()
