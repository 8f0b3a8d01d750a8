"""A response before and while it is written: the draft that a request becomes, and the writer that is registered.

What a whole reply, a stream, a response in the background and a turn on a WebSocket have in common.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sparewatt.api.responses.submissions import (
    Conversation,
    ResponseCaller,
    ResponseSubmissions,
    chat_call,
    conversation_of,
)
from sparewatt.api.responses.writer import ResponseWriter
from sparewatt.core.clock import Clock
from sparewatt.core.errors import RetentionForbidden
from sparewatt.inference.call import ModelCall
from sparewatt.inference.responses.conversations import ConversationAddition
from sparewatt.inference.responses.record import ResponseRecord
from sparewatt.inference.responses.registry import ResponseRegistry
from sparewatt.inference.responses.retention import Lifetime, lifetime_of, require_day, retention_note
from sparewatt.inference.responses.shelf import Shelf, require_shelf
from sparewatt.policy.model import Retention
from sparewatt.protocol.responses.chat_request import to_messages
from sparewatt.protocol.responses.input_items import NewId, read_input
from sparewatt.protocol.responses.item_ids import item_ids, with_own_ids
from sparewatt.protocol.responses.request import Json, ParsedResponsesRequest, ResponsesRequest
from sparewatt.protocol.responses.response_object import new_response
from sparewatt.protocol.responses.tools import read_tools
from sparewatt.protocol.responses.translator import ResponseTranslator

STORE_HEADER = "x-sparewatt-store"


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
    addition: ConversationAddition | None
    """What the conversation gets that it belongs to; None if there is none."""

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
    addition = _addition(request, shelf, with_own_ids(conversation.own, new_id=new_id), retention)
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
        addition=addition,
        expires_at=await record.begin(response, in_background=in_background) if record is not None else None,
    )


def _lifetime(request: ResponsesRequest, shelf: Shelf | None, retention: Retention) -> Lifetime | None:
    """Raises RetentionForbidden or UnsupportedParameter."""
    lifetime = lifetime_of(store=request.store, allowed=retention, has_key=shelf is not None)
    if lifetime == "day":
        require_shelf(shelf, param="store")
    if request.background and lifetime is None:
        require_shelf(shelf, param="background")
        raise RetentionForbidden(
            f"A response in the background is fetched later, and nothing may be kept: {retention_note(retention)}",
            param="background",
        )
    return lifetime


def _addition(
    request: ResponsesRequest, shelf: Shelf | None, own: list[Json], retention: Retention
) -> ConversationAddition | None:
    """Raises RetentionForbidden."""
    if shelf is None or request.conversation_id is None:
        return None
    require_day(retention, param="conversation")
    return ConversationAddition(shelf.conversations, request.conversation_id, own)


def _record(shelf: Shelf | None, lifetime: Lifetime | None, items: list[Json]) -> ResponseRecord | None:
    """`items`: of a response for an hour with its references as they came. What they stand for has an hour of its own,
    which a copy would make longer."""
    if shelf is None or lifetime is None:
        return None
    return ResponseRecord(shelf=shelf, lifetime=lifetime, items=items)


@dataclass(slots=True, kw_only=True)
class ResponseDrafts:
    submissions: ResponseSubmissions
    registry: ResponseRegistry
    make_id: NewId
    clock: Clock

    async def draft(
        self, caller: ResponseCaller, parsed: ParsedResponsesRequest, *, history: list[Json] | None = None
    ) -> ResponseDraft:
        """Raises the error that the client gets. `history`: as `conversation_of` takes it."""
        return await draft_response(
            parsed,
            caller.shelf,
            retention=self.submissions.retention_for(caller, parsed),
            response_id=self.make_id("resp"),
            now=int(self.clock.unix_s()),
            history=history,
        )

    @asynccontextmanager
    async def writing(self, caller: ResponseCaller, draft: ResponseDraft) -> AsyncIterator[ResponseWriter]:
        """A writer that is registered. If the client leaves early, what was written is stored, unless nothing began."""
        registry, writer = self.registry, None
        try:
            async with self.submissions.submit(caller, draft.call) as submission:
                writer = ResponseWriter(
                    submission=submission,
                    translator=ResponseTranslator(draft.response, new_id=draft.new_id),
                    key_id=caller.principal.key_id,
                    record=draft.record,
                    addition=draft.addition,
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
