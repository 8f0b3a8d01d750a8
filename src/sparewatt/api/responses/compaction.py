"""POST /v1/responses/compact, in which a node summarizes a conversation to make it shorter, and …/input_tokens."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.responses.submissions import (
    ResponseCaller,
    ResponseSubmissions,
    answer_headers,
    chat_call,
    conversation_of,
    refusal_of,
)
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, JobFailed
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.edge.auth import authorization_of
from sparewatt.edge.bodies import json_reply, read_body
from sparewatt.inference.prompt import size_of
from sparewatt.inference.responses.shelf import ShelfFactory, require_shelf
from sparewatt.protocol.api.responses import CompactionItem, InputTokenCount, ResponseCompaction, ResponseUsage
from sparewatt.protocol.responses.chat_chunks import read_chunk
from sparewatt.protocol.responses.chat_request import to_messages
from sparewatt.protocol.responses.compaction import SUMMARY_PROMPT, compacted_items
from sparewatt.protocol.responses.input_items import NewId, read_input
from sparewatt.protocol.responses.request import ParsedResponsesRequest, parse_request
from sparewatt.protocol.responses.response_object import usage_of
from sparewatt.protocol.responses.tools import NO_TOOLS, read_tools

ESTIMATED_HEADER = "x-sparewatt-estimated"


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
        shelf = self.shelves.shelf_for(principal, authorization_of(request.headers))
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
