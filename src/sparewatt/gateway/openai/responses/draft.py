"""A request to `/v1/responses` made ready: its items, what it goes on from, and the chat that asks nodes for it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import new_id
from sparewatt.core.rng import Rng
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.chat import read_chat
from sparewatt.gateway.openai.responses.shelf import Shelf, gone, needed
from sparewatt.protocol.responses.compaction import opened
from sparewatt.protocol.responses.items import NewId, read_input
from sparewatt.protocol.responses.messages import to_messages
from sparewatt.protocol.responses.request import Asked, Json
from sparewatt.protocol.responses.resource import new_response
from sparewatt.protocol.responses.to_chat import to_chat
from sparewatt.protocol.responses.tools import Tools, read_tools

ID_BYTES = 20


@dataclass(frozen=True, slots=True)
class Draft:
    """`response` before anything was written; `items` are those of this request alone."""

    response: Json
    items: list[Json]
    call: Call


def id_maker(rng: Rng) -> NewId:
    return lambda prefix: new_id(prefix, rng=rng, n_bytes=ID_BYTES)


async def draft_response(asked: Asked, shelf: Shelf | None, *, make_id: NewId, now: int) -> Draft:
    """Raises what a client should hear."""
    request = asked.request
    if request.stores:
        needed(shelf, param="store")
    tools = read_tools(request.tools, request.tool_choice)
    response = new_response(request, tools, response_id=make_id("resp"), created_at=now, stored=request.stores)
    items = read_input(request.input, new_id=make_id)
    context = await context_of(asked, items, shelf)
    messages = to_messages(context, instructions=request.instructions)
    return Draft(response, items, chat_call(asked, messages, tools))


async def context_of(asked: Asked, items: list[Json], shelf: Shelf | None) -> list[Json]:
    """What came before and these items, nothing in it sealed. Raises PreviousResponseGone or InvalidField."""
    previous, history = asked.request.previous_response_id, []
    if previous is not None:
        if shelf is None:
            raise gone(previous)
        history = await shelf.history(previous)

    def open_sealed(sealed: str) -> list[Json]:
        return needed(shelf, param="input").open_items(sealed)

    context = opened([*history, *items], open_sealed)
    if not context and not asked.request.instructions:
        raise InvalidField("There is nothing to answer: send 'input'.", param="input")
    return context


def chat_call(asked: Asked, messages: list[Json], tools: Tools) -> Call:
    """As if the client had sent it as a chat."""
    body = to_chat(asked, messages, tools)
    call = read_chat(msgspec.json.encode(body))
    return msgspec.structs.replace(call, ignored=(*call.ignored, *asked.ignored, *tools.ignored))
