"""POST /v1/responses: a request becomes a chat, and the chat's reply a response. Also …/compact and …/input_tokens.

Draft → submission → `ResponseWriter` → the reply: whole, as a stream, or written on in the background. A compaction
makes a conversation shorter: a node summarizes it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.responses.streaming import EventStream, is_overdue, send_log
from sparewatt.api.responses.submissions import (
    Conversation,
    ResponseCaller,
    ResponseSubmissions,
    answer_headers,
    chat_call,
    conversation_of,
    refusal_of,
)
from sparewatt.api.responses.writer import ResponseWriter
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, JobFailed, RetentionForbidden
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.edge.bodies import json_reply, read_body
from sparewatt.inference.call import ModelCall
from sparewatt.inference.prompt import size_of
from sparewatt.inference.responses.event_log import EventLog
from sparewatt.inference.responses.record import ResponseRecord
from sparewatt.inference.responses.registry import ResponseRegistry
from sparewatt.inference.responses.retention import Lifetime, lifetime_of, retention_note
from sparewatt.inference.responses.shelf import Shelf, ShelfFactory, require_shelf
from sparewatt.policy.model import Retention
from sparewatt.protocol.api.responses import (
    CompactionItem,
    InputTokenCount,
    ResponseCompaction,
    ResponseObject,
    ResponseUsage,
)
from sparewatt.protocol.responses.chat_chunks import read_chunk
from sparewatt.protocol.responses.chat_request import to_messages
from sparewatt.protocol.responses.compaction import SUMMARY_PROMPT, compacted_items
from sparewatt.protocol.responses.input_items import NewId, read_input
from sparewatt.protocol.responses.item_ids import item_ids
from sparewatt.protocol.responses.request import Json, ParsedResponsesRequest, ResponsesRequest, parse_request
from sparewatt.protocol.responses.response_object import new_response, usage_of
from sparewatt.protocol.responses.tools import NO_TOOLS, read_tools
from sparewatt.protocol.responses.translator import ResponseTranslator

_MATCH_HEADER = "x-sparewatt-match-id"
STORE_HEADER = "x-sparewatt-store"
ESTIMATED_HEADER = "x-sparewatt-estimated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDraft:
    """A response of which nothing was written yet."""

    response: Json
    call: ModelCall
    is_streamed: bool
    in_background: bool
    new_id: NewId
    """Makes the ids of its items."""
    conversation: Conversation
    record: ResponseRecord | None
    """Where it is kept; None if it is not."""
    expires_at: dt.datetime | None
    """Until when it is kept."""

    def headers(self) -> dict[str, str]:
        """Unlike at OpenAI, a response is stored only if the request says so; this header tells what holds."""
        if self.expires_at is None or self.record is None:
            return {STORE_HEADER: "false"}
        word = "true" if self.record.lifetime == "day" else "hour"
        return {STORE_HEADER: f"{word}; until={self.expires_at.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"}


async def draft_response(
    parsed: ParsedResponsesRequest,
    shelf: Shelf | None,
    *,
    retention: Retention,
    response_id: str,
    now: int,
    history: list[Json] | None = None,
) -> ResponseDraft:
    """Store it, if the request says so. Raises the error that the client gets.

    `retention`: the longest that policies let it be kept. `history`: as `conversation_of` takes it.
    """
    request, new_id = parsed.request, item_ids(response_id)
    lifetime = _lifetime(request, shelf, retention)
    tools = read_tools(request.tools, request.tool_choice)
    response = new_response(request, tools, response_id=response_id, created_at=now, stored=lifetime == "day")
    items = read_input(request.input, new_id=new_id)
    conversation = await conversation_of(parsed, items, shelf, history=history)
    messages = to_messages(conversation.items, instructions=request.instructions)
    record = _record(shelf, lifetime, conversation.own if lifetime == "day" else items)
    in_background = bool(request.background)
    return ResponseDraft(
        response=response,
        call=chat_call(parsed, messages, tools),
        is_streamed=bool(request.stream),
        in_background=in_background,
        new_id=new_id,
        conversation=conversation,
        record=record,
        expires_at=await record.begin(response, in_background=in_background) if record is not None else None,
    )


def _lifetime(request: ResponsesRequest, shelf: Shelf | None, retention: Retention) -> Lifetime | None:
    """Raises RetentionForbidden or UnsupportedParameter."""
    lifetime = lifetime_of(request.store, retention, has_key=shelf is not None)
    if lifetime == "day":
        require_shelf(shelf, param="store")
    if request.background and lifetime is None:
        require_shelf(shelf, param="background")
        raise RetentionForbidden(
            f"A response in the background is fetched later, and nothing may be kept: {retention_note(retention)}",
            param="background",
        )
    return lifetime


def _record(shelf: Shelf | None, lifetime: Lifetime | None, items: list[Json]) -> ResponseRecord | None:
    """`items`: of a response for an hour with its references as they came. What they stand for has an hour of its own,
    which a copy would make longer."""
    if shelf is None or lifetime is None:
        return None
    return ResponseRecord(shelf=shelf, lifetime=lifetime, items=items)


@dataclass(slots=True, kw_only=True)
class ResponseEndpoints:
    submissions: ResponseSubmissions
    registry: ResponseRegistry
    make_id: NewId
    clock: Clock

    @endpoint("POST /v1/responses", access="identified", body="ResponseRequest", reply=ResponseObject, streams=True)
    async def create_response(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Answer items, whole, as a stream of events, or in the background."""
        return await self.submissions.answer(request, principal, self._create)

    async def _create(self, caller: ResponseCaller, parsed: ParsedResponsesRequest) -> web.StreamResponse:
        if parsed.request.background:
            self.registry.refuse_too_many(caller.principal.key_id)
        retention = self.submissions.retention_for(caller, parsed)
        draft = await draft_response(
            parsed,
            caller.shelf,
            retention=retention,
            response_id=self.make_id("resp"),
            now=int(self.clock.unix_s()),
        )
        async with AsyncExitStack() as stack:
            writer = await stack.enter_async_context(self._writing(caller, draft))
            if draft.in_background:
                return await self._continue_in_background(caller, draft, writer, stack.pop_all())
            return await (_stream(caller, draft, writer) if draft.is_streamed else _reply_whole(draft, writer))

    @asynccontextmanager
    async def _writing(self, caller: ResponseCaller, draft: ResponseDraft) -> AsyncIterator[ResponseWriter]:
        """A writer that is registered. If the client leaves early, what was written is stored, unless nothing began."""
        registry, writer = self.registry, None
        try:
            async with self.submissions.submit(caller, draft.call) as submission:
                writer = ResponseWriter(
                    submission=submission,
                    translator=ResponseTranslator(draft.response, new_id=draft.new_id),
                    key_id=caller.principal.key_id,
                    record=draft.record,
                    clock=self.clock,
                )
                registry.add(writer)
                try:
                    yield writer
                finally:
                    registry.remove(writer)
        finally:
            if writer is not None and writer.has_begun:
                if not writer.over.is_set():
                    registry.spawn(writer.abandon())
            elif draft.record is not None:
                registry.spawn(draft.record.discard(draft.response))

    async def _continue_in_background(
        self, caller: ResponseCaller, draft: ResponseDraft, writer: ResponseWriter, stack: AsyncExitStack
    ) -> web.StreamResponse:
        """Write it to its end even if the client leaves: it can be fetched by its id. `stack` closes the writer."""
        writer.has_begun = True
        writer.log = log = EventLog()

        async def write() -> None:
            async with stack:
                try:
                    await writer.begin(log.add)
                    await writer.stream(log.add)
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
        await writer.begin(stream.send)
        await writer.stream(stream.send)
    return stream.response


def _headers(draft: ResponseDraft, writer: ResponseWriter) -> dict[str, str]:
    submission = writer.submission
    return {_MATCH_HEADER: submission.match.id} | answer_headers(submission) | draft.headers()


# compaction


@dataclass(slots=True, kw_only=True)
class CompactionEndpoints:
    submissions: ResponseSubmissions
    shelves: ShelfFactory
    make_id: NewId
    clock: Clock

    @endpoint("POST /v1/responses/compact", access="identified", body="ResponseRequest", reply=ResponseCompaction)
    async def compact_response(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Compact a conversation into one item, sealed under the API key."""
        return await self.submissions.answer(request, principal, self._compact)

    @endpoint("POST /v1/responses/input_tokens", access="inference", body="ResponseRequest")
    async def count_input_tokens(self, request: web.Request, principal: Principal) -> Reply[InputTokenCount]:
        """Estimate the tokens of an input from its bytes: only nodes have tokenizers."""
        body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
        parsed = parse_request(_with_model(body))
        items = read_input(parsed.request.input, new_id=self.make_id)
        shelf = self.shelves.shelf_for(principal, request.headers.get("authorization"))
        conversation = await conversation_of(parsed, items, shelf)
        messages = to_messages(conversation.items, instructions=parsed.request.instructions)
        tools = read_tools(parsed.request.tools, parsed.request.tool_choice)
        size = size_of(msgspec.json.encode(part) for part in (*messages, *tools.functions))
        return Reply(InputTokenCount(input_tokens=size.tokens), headers={ESTIMATED_HEADER: "input_tokens"})

    async def _compact(self, caller: ResponseCaller, parsed: ParsedResponsesRequest) -> web.StreamResponse:
        shelf, make_id = require_shelf(caller.shelf, param="input"), self.make_id
        items = read_input(parsed.request.input, new_id=make_id)
        conversation = (await conversation_of(parsed, items, shelf)).items
        messages = to_messages(conversation, instructions=parsed.request.instructions)
        messages.append({"role": "user", "content": SUMMARY_PROMPT})
        call = chat_call(_without_options(parsed), messages, NO_TOOLS)
        async with self.submissions.submit(caller, call) as submission:
            await submission.sink.begun()
            refusal = refusal_of(submission)
            if refusal is not None:
                return refusal
            summary, usage = _read_summary(await submission.sink.take_all())
            headers = answer_headers(submission)
        sealed = shelf.seal_items(compacted_items(conversation, summary, new_id=make_id))
        compaction = ResponseCompaction(
            id=make_id("resp"),
            created_at=int(self.clock.unix_s()),
            output=[CompactionItem(id=make_id("cmp"), encrypted_content=sealed)],
            usage=usage,
        )
        return json_reply(compaction, headers=headers)


def _without_options(parsed: ParsedResponsesRequest) -> ParsedResponsesRequest:
    """Only the model, the policy of which nodes may serve it, and the limit: a summary is text, and not streamed."""
    fields = {name: getattr(parsed.request, name) for name in ("model", "provider", "max_output_tokens")}
    return ParsedResponsesRequest(type(parsed.request)(**fields), {}, parsed.ignored)


def _read_summary(body: bytes) -> tuple[str, ResponseUsage | None]:
    """Raises JobFailed."""
    chunk = read_chunk(body)
    if chunk is None or not chunk.choices or not chunk.choices[0].content_delta.text:
        raise JobFailed("The node's answer was empty: the conversation has no summary. Try again.")
    usage = usage_of(chunk.usage)
    return chunk.choices[0].content_delta.text, ResponseUsage(**usage) if usage is not None else None


def _with_model(body: bytes) -> bytes:
    """Counting needs no model, and clients may leave it out."""
    try:
        fields = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidField("The body is not a JSON object.") from None
    return msgspec.json.encode({"model": "any"} | fields)
