"""POST /v1/responses/compact and /input_tokens: a conversation made shorter, and how long one is."""

from __future__ import annotations

import msgspec
from aiohttp import web

from sparewatt.core.errors import InvalidField, JobFailed
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.gateway.http import ASKED, authenticate, json_reply, read_body
from sparewatt.gateway.openai.answer import refusal, reply_headers
from sparewatt.gateway.openai.responses.draft import chat_call, context_of, id_maker
from sparewatt.gateway.openai.responses.shelf import needed, shelf_of
from sparewatt.gateway.openai.serving import Caller, answer_once, enter, errand_for
from sparewatt.gateway.services import services_of
from sparewatt.inference.admission.sizing import size_of
from sparewatt.protocol.responses.chunks import read_chunk
from sparewatt.protocol.responses.compaction import ASK, shortened
from sparewatt.protocol.responses.items import read_input
from sparewatt.protocol.responses.messages import to_messages
from sparewatt.protocol.responses.request import Asked, Json, parse_request
from sparewatt.protocol.responses.resource import usage_of
from sparewatt.protocol.responses.tools import NO_TOOLS, read_tools

ESTIMATED_HEADER = "x-sparewatt-estimated"


async def compact_response(request: web.Request) -> web.StreamResponse:
    """Make a conversation short: one item that stands for it, sealed under the API key."""
    caller = await enter(request[ASKED])
    body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
    return await answer_once(request[ASKED], caller, body, lambda: _compact(request, caller, parse_request(body)))


async def _compact(request: web.Request, caller: Caller, asked: Asked) -> web.StreamResponse:
    services = services_of(request)
    shelf, make_id = needed(shelf_of(request, caller.who), param="input"), id_maker(services.rng)
    context = await context_of(asked, read_input(asked.request.input, new_id=make_id), shelf)
    messages = to_messages(context, instructions=asked.request.instructions)
    messages.append({"role": "user", "content": ASK})
    async with errand_for(request[ASKED], caller, chat_call(_plain(asked), messages, NO_TOOLS)) as errand:
        await errand.sink.begun()
        refused = refusal(errand)
        if refused is not None:
            return refused
        summary, usage = _read_reply(await errand.sink.take_all())
        headers = reply_headers(errand, errand.sink.headers)
    sealed = shelf.seal_items(shortened(context, summary, new_id=make_id))
    reply = {
        "id": make_id("resp"),
        "object": "response.compaction",
        "created_at": int(services.clock.unix_s()),
        "output": [{"id": make_id("cmp"), "type": "compaction", "encrypted_content": sealed}],
        "usage": usage,
    }
    return json_reply(reply, headers={n: v for n, v in headers.items() if n != "content-type"})


async def count_input_tokens(request: web.Request) -> web.StreamResponse:
    """An estimate from the bytes: the tokenizer is with the nodes."""
    who = await authenticate(request, "inference")
    body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
    asked = parse_request(_with_model(body))
    services = services_of(request)
    items = read_input(asked.request.input, new_id=id_maker(services.rng))
    context = await context_of(asked, items, shelf_of(request, who))
    messages = to_messages(context, instructions=asked.request.instructions)
    tools = read_tools(asked.request.tools, asked.request.tool_choice)
    size = size_of(msgspec.json.encode(part) for part in (*messages, *tools.functions))
    reply = {"object": "response.input_tokens", "input_tokens": size.tokens}
    return json_reply(reply, headers={ESTIMATED_HEADER: "input_tokens"})


def _plain(asked: Asked) -> Asked:
    """Only the question and who may answer it: a summary is text, and not streamed."""
    wanted = {name: getattr(asked.request, name) for name in ("model", "provider", "max_output_tokens")}
    return Asked(type(asked.request)(**wanted), {}, asked.ignored)


def _read_reply(body: bytes) -> tuple[str, Json | None]:
    """Raises JobFailed."""
    chunk = read_chunk(body)
    if chunk is None or not chunk.choices or not chunk.choices[0].said.text:
        raise JobFailed("The node's answer was empty: nothing to put in the conversation's place.")
    return chunk.choices[0].said.text, usage_of(chunk.usage)


def _with_model(body: bytes) -> bytes:
    """Counting needs no model, and clients may leave it out."""
    try:
        fields = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidField("The body is not a JSON object.") from None
    return msgspec.json.encode({"model": "any"} | fields)
