"""A request to `/v1/responses` made ready: its items, the conversation before them, and the chat for a node."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import msgspec

from sparewatt.api.inference.chat import read_chat
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import new_id
from sparewatt.core.rng import Rng
from sparewatt.inference.call import ModelCall
from sparewatt.inference.responses.shelf import Shelf, previous_response_gone, require_shelf
from sparewatt.protocol.responses.chat_request import to_chat, to_messages
from sparewatt.protocol.responses.compaction import expanded_items
from sparewatt.protocol.responses.input_items import NewId, read_input
from sparewatt.protocol.responses.request import Json, ParsedResponsesRequest
from sparewatt.protocol.responses.response_object import new_response
from sparewatt.protocol.responses.tools import ToolSelection, read_tools

STORE_HEADER = "x-sparewatt-store"
ID_BYTES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDraft:
    """A response of which nothing was written yet."""

    response: Json
    call: ModelCall
    is_streamed: bool
    in_background: bool
    shelf: Shelf | None
    """Where it is stored; None if it is not."""
    expires_at: dt.datetime | None
    """Until when it is stored."""

    def headers(self) -> dict[str, str]:
        """Unlike OpenAI's, a response is not stored unless the request says so; every reply says whether it is."""
        if self.expires_at is None:
            return {STORE_HEADER: "false"}
        return {STORE_HEADER: f"true; until={self.expires_at.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"}


def id_maker(rng: Rng) -> NewId:
    return lambda prefix: new_id(prefix, rng=rng, n_bytes=ID_BYTES)


async def draft_response(
    parsed: ParsedResponsesRequest, shelf: Shelf | None, *, make_id: NewId, now: int
) -> ResponseDraft:
    """Store it, if the request says so. Raises what a client should hear."""
    request = parsed.request
    store = require_shelf(shelf, param="store") if request.stores else None
    tools = read_tools(request.tools, request.tool_choice)
    response = new_response(request, tools, response_id=make_id("resp"), created_at=now, stored=request.stores)
    items = read_input(request.input, new_id=make_id)
    conversation = await conversation_of(parsed, items, shelf)
    messages = to_messages(conversation, instructions=request.instructions)
    call = chat_call(parsed, messages, tools)
    return ResponseDraft(
        response=response,
        call=call,
        is_streamed=bool(request.stream),
        in_background=bool(request.background),
        shelf=store,
        expires_at=await store.put(response, items) if store is not None else None,
    )


async def conversation_of(parsed: ParsedResponsesRequest, items: list[Json], shelf: Shelf | None) -> list[Json]:
    """Items of previous responses and these, compactions opened. Raises PreviousResponseGone or InvalidField."""
    previous, history = parsed.request.previous_response_id, []
    if previous is not None:
        if shelf is None:
            raise previous_response_gone(previous)
        history = await shelf.history(previous)

    def open_sealed(sealed: str) -> list[Json]:
        return require_shelf(shelf, param="input").open_items(sealed)

    conversation = expanded_items([*history, *items], open_sealed)
    if not conversation and not parsed.request.instructions:
        raise InvalidField("There is nothing to answer: send 'input'.", param="input")
    return conversation


def chat_call(parsed: ParsedResponsesRequest, messages: list[Json], tools: ToolSelection) -> ModelCall:
    """As if the client had sent a chat."""
    body = to_chat(parsed, messages, tools)
    call = read_chat(msgspec.json.encode(body))
    return msgspec.structs.replace(call, ignored=(*call.ignored, *parsed.ignored, *tools.ignored))
