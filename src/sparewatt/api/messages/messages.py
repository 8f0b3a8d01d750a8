"""POST /v1/messages: a request becomes a chat, and the chat's reply a message. Also …/count_tokens."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.inference.chat import read_chat
from sparewatt.api.inference.translated import TranslatedCall, TranslatedCalls
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.edge.bodies import read_body
from sparewatt.edge.middleware import context_of
from sparewatt.inference.call import ModelCall
from sparewatt.inference.prompt import size_of
from sparewatt.protocol.anthropic.chat_request import to_chat
from sparewatt.protocol.anthropic.reply import AnthropicReply
from sparewatt.protocol.anthropic.request import ParsedMessagesRequest, parse_messages, require_max_tokens
from sparewatt.protocol.anthropic.translator import MessageTranslator
from sparewatt.protocol.api.messages import AssistantMessage, MessageTokenCount
from sparewatt.protocol.responses.input_items import NewId

_ESTIMATED_HEADER = "x-sparewatt-estimated"


@dataclass(slots=True, kw_only=True)
class MessageEndpoints:
    calls: TranslatedCalls
    make_id: NewId

    @endpoint("POST /v1/messages", access="identified", body="MessagesRequest", reply=AssistantMessage, streams=True)
    async def create_message(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Answer a conversation in Anthropic's protocol, whole or as a stream of events."""
        request_id = context_of(request).id
        return await self.calls.answer(request, principal, lambda body: self._read(body, request_id))

    @endpoint("POST /v1/messages/count_tokens", access="inference", body="MessageCountRequest")
    async def count_message_tokens(self, request: web.Request, _: Principal) -> Reply[MessageTokenCount]:
        """Estimate the tokens of a conversation from its bytes: only nodes have tokenizers."""
        chat = to_chat(parse_messages(await read_body(request, limit=REQUEST_BODY_BYTES_MAX))).fields
        size = size_of(msgspec.json.encode(part) for part in (*chat["messages"], *chat.get("tools", ())))
        return Reply(MessageTokenCount(input_tokens=size.tokens), headers={_ESTIMATED_HEADER: "input_tokens"})

    def _read(self, body: bytes, request_id: str) -> TranslatedCall:
        parsed = parse_messages(body)
        request, max_tokens = parsed.request, require_max_tokens(parsed.request)
        call = message_call(parsed)
        translator = MessageTranslator(
            message_id=self.make_id("msg"),
            model=request.model,
            shows_thinking=request.shows_thinking,
            stops=tuple(request.stop_sequences or ()),
            new_id=self.make_id,
        )
        prompt_tokens = call.size.tokens
        reply = AnthropicReply(translator, request_id=request_id, prompt_tokens=prompt_tokens, max_tokens=max_tokens)
        return TranslatedCall(call, reply)


def message_call(parsed: ParsedMessagesRequest) -> ModelCall:
    """As if the client had sent a chat."""
    chat = to_chat(parsed)
    call = read_chat(msgspec.json.encode(chat.fields))
    return msgspec.structs.replace(call, ignored=(*call.ignored, *chat.ignored))
