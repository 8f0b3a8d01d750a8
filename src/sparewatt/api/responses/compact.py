"""POST /v1/responses/compact and /input_tokens: a conversation made shorter, and how long one is."""

from __future__ import annotations

import msgspec
from aiohttp import web

from sparewatt.api.endpoint import Reply, post
from sparewatt.api.responses.draft import chat_call, conversation_of, id_maker
from sparewatt.api.responses.submissions import ResponseCaller, ResponseSubmissions, answer_headers, refusal_of
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, JobFailed
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.core.rng import Rng
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import json_reply, read_body
from sparewatt.edge.middleware import context_of
from sparewatt.inference.admission.sizing import size_of
from sparewatt.inference.responses.shelf import ShelfFactory, require_shelf
from sparewatt.protocol.api.responses import CompactionItem, InputTokenCount, ResponseCompaction, ResponseUsage
from sparewatt.protocol.responses.chat_chunks import read_chunk
from sparewatt.protocol.responses.chat_messages import to_messages
from sparewatt.protocol.responses.compaction import SUMMARY_PROMPT, compacted_items
from sparewatt.protocol.responses.input_items import read_input
from sparewatt.protocol.responses.request import ParsedResponsesRequest, parse_request
from sparewatt.protocol.responses.response_object import usage_of
from sparewatt.protocol.responses.tools import NO_TOOLS, read_tools

ESTIMATED_HEADER = "x-sparewatt-estimated"


class CompactionEndpoints:
    def __init__(
        self,
        *,
        submissions: ResponseSubmissions,
        auth: Authenticator,
        shelves: ShelfFactory,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._submissions = submissions
        self._auth = auth
        self._shelves = shelves
        self._clock = clock
        self._make_id = id_maker(rng)

    @post("/v1/responses/compact", body="ResponseRequest", reply=ResponseCompaction)
    async def compact_response(self, request: web.Request) -> web.StreamResponse:
        """Compact a conversation into one item, sealed under the API key."""
        return await self._submissions.answer(request, self._compact)

    @post("/v1/responses/input_tokens", body="ResponseRequest")
    async def count_input_tokens(self, request: web.Request) -> Reply[InputTokenCount]:
        """Estimate the tokens of an input from its bytes: only nodes have tokenizers."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
        parsed = parse_request(_with_model(body))
        items = read_input(parsed.request.input, new_id=self._make_id)
        shelf = self._shelves.shelf_for(principal, request.headers.get("authorization"))
        conversation = await conversation_of(parsed, items, shelf)
        messages = to_messages(conversation, instructions=parsed.request.instructions)
        tools = read_tools(parsed.request.tools, parsed.request.tool_choice)
        size = size_of(msgspec.json.encode(part) for part in (*messages, *tools.functions))
        return Reply(InputTokenCount(input_tokens=size.tokens), headers={ESTIMATED_HEADER: "input_tokens"})

    async def _compact(self, caller: ResponseCaller, parsed: ParsedResponsesRequest) -> web.StreamResponse:
        shelf, make_id = require_shelf(caller.shelf, param="input"), self._make_id
        conversation = await conversation_of(parsed, read_input(parsed.request.input, new_id=make_id), shelf)
        messages = to_messages(conversation, instructions=parsed.request.instructions)
        messages.append({"role": "user", "content": SUMMARY_PROMPT})
        call = chat_call(_without_options(parsed), messages, NO_TOOLS)
        async with self._submissions.submit(caller, call) as submission:
            await submission.sink.begun()
            refusal = refusal_of(submission)
            if refusal is not None:
                return refusal
            summary, usage = _read_summary(await submission.sink.take_all())
            headers = answer_headers(submission)
        sealed = shelf.seal_items(compacted_items(conversation, summary, new_id=make_id))
        compaction = ResponseCompaction(
            id=make_id("resp"),
            created_at=int(self._clock.unix_s()),
            output=[CompactionItem(id=make_id("cmp"), encrypted_content=sealed)],
            usage=usage,
        )
        return json_reply(compaction, headers=headers)


def _without_options(parsed: ParsedResponsesRequest) -> ParsedResponsesRequest:
    """Only the model, who may serve it, and the limit: a summary is text, and not streamed."""
    fields = {name: getattr(parsed.request, name) for name in ("model", "provider", "max_output_tokens")}
    return ParsedResponsesRequest(type(parsed.request)(**fields), {}, parsed.ignored)


def _read_summary(body: bytes) -> tuple[str, ResponseUsage | None]:
    """Raises JobFailed."""
    chunk = read_chunk(body)
    if chunk is None or not chunk.choices or not chunk.choices[0].content_delta.text:
        raise JobFailed("The node's answer was empty: nothing to put in the conversation's place.")
    usage = usage_of(chunk.usage)
    return chunk.choices[0].content_delta.text, ResponseUsage(**usage) if usage is not None else None


def _with_model(body: bytes) -> bytes:
    """Counting needs no model, and clients may leave it out."""
    try:
        fields = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidField("The body is not a JSON object.") from None
    return msgspec.json.encode({"model": "any"} | fields)
