"""POST /v1/chat/completions."""

from __future__ import annotations

from aiohttp import web

from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.serving import serve
from sparewatt.inference.admission.sizing import size_of
from sparewatt.protocol.openai import parse_chat


async def chat_completions(request: web.Request) -> web.StreamResponse:
    return await serve(request, read_chat)


def read_chat(body: bytes) -> Call:
    """Raises InvalidJson or InvalidField."""
    chat = parse_chat(body)
    messages = tuple(map(bytes, chat.messages))
    return Call(
        path="/v1/chat/completions",
        model=chat.model,
        body=body,
        size=size_of(messages),
        prompt=messages,
        provider=bytes(chat.provider),
        stream=bool(chat.stream),
        wants_usage=chat.wants_usage,
        output_limit=chat.output_limit,
        answers=chat.n or 1,
    )
