"""What a user of Anthropic's Python client does, with nothing of ours imported; prints what happened as JSON.

python messages.py ROOT_URL API_KEY MODEL. Before that it prints a line when its long answer has begun to arrive: a test
may kill the node that writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anthropic

SYSTEM: list[Any] = [{"type": "text", "text": "You are a station.", "cache_control": {"type": "ephemeral"}}]
QUESTION = "What is the weather in Rome?"
RESULT = "sunny, 21 degrees"
FOLLOW_UP = "And tomorrow? Grüße 🙂"
LONG_TOKENS, SHORT_TOKENS = 40, 6
WORDS = 12_000
"""More than the context holds."""
TOOLS: list[Any] = [
    {
        "name": "get_weather",
        "description": "The weather of a city.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
TIMEOUT_S = 60.0


def main(root_url: str, api_key: str, model: str) -> None:
    client = anthropic.Anthropic(base_url=root_url, api_key=api_key, max_retries=0, timeout=TIMEOUT_S)
    bearer = anthropic.Anthropic(base_url=root_url, auth_token=api_key, max_retries=0, timeout=TIMEOUT_S)
    stranger = client.with_options(api_key="sk-wrong")
    ask: dict[str, Any] = {"model": model, "system": SYSTEM, "tools": TOOLS, "max_tokens": LONG_TOKENS}
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    short = ask | {"max_tokens": SHORT_TOKENS, "messages": messages[:1]}
    create: Callable[..., Any] = client.messages.create

    call = client.messages.create(**ask, messages=messages)
    messages += [{"role": "assistant", "content": call.content}, _result(call)]
    long = _streamed(client, ask | {"messages": messages})
    messages += [{"role": "assistant", "content": long["text"]}, {"role": "user", "content": FOLLOW_UP}]
    last = client.messages.create(**ask | {"max_tokens": SHORT_TOKENS}, messages=messages)
    report = {
        "version": anthropic.__version__,
        "models": [each.id for each in client.models.list()],
        "model": client.models.retrieve(model).id,
        "counted": client.messages.count_tokens(
            model=model, system=SYSTEM, messages=messages, tools=TOOLS
        ).input_tokens,
        "call": {"blocks": [block.to_dict() for block in call.content], "stop_reason": call.stop_reason},
        "streamed_call": _streamed_call(client, ask | {"messages": messages[:1]}),
        "long": long,
        "last": {"text": last.content[0].text, "stop_reason": last.stop_reason, "usage": _counts(last.usage)},
        "by_bearer": bearer.messages.create(**short | {"tools": []}).content[0].text,
        "full": error_of(lambda: create(**short | {"messages": [{"role": "user", "content": "word " * WORDS}]})),
        "full_streamed": error_of(
            lambda: create(**short | {"messages": [{"role": "user", "content": "word " * WORDS}]}, stream=True)
        ),
        "wrong_key": error_of(lambda: stranger.messages.create(**short)),
        "unknown_model": error_of(lambda: create(**short | {"model": "no-such-model"})),
        "malformed": error_of(lambda: create(**short, extra_body={"temperature": "hot"})),
        "refused": error_of(lambda: create(**short, extra_body={"mcp_servers": [{"type": "url", "url": "x"}]})),
    }
    json.dump(report, sys.stdout)


def _result(call: Any) -> dict[str, Any]:
    used = next(block for block in call.content if block.type == "tool_use")
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": used.id, "content": RESULT}]}


def _streamed(client: anthropic.Anthropic, ask: dict[str, Any]) -> dict[str, Any]:
    pieces: list[str] = []
    with client.messages.stream(**ask) as stream:
        match_id = stream.response.headers["x-sparewatt-match-id"]
        for text in stream.text_stream:
            pieces.append(text)
            if len(pieces) == 2:
                sys.stdout.write(f"writing {match_id}\n")
                sys.stdout.flush()
        message = stream.get_final_message()
    return {
        "text": "".join(pieces),
        "pieces": len(pieces),
        "stop_reason": message.stop_reason,
        "usage": _counts(message.usage),
        "match_id": match_id,
    }


def _streamed_call(client: anthropic.Anthropic, ask: dict[str, Any]) -> dict[str, Any]:
    with client.messages.stream(**ask) as stream:
        message = stream.get_final_message()
    return {"blocks": [block.to_dict() for block in message.content], "stop_reason": message.stop_reason}


def _counts(usage: Any) -> list[int]:
    return [usage.input_tokens, usage.output_tokens]


def error_of(call: Callable[[], object]) -> dict[str, Any]:
    try:
        call()
    except anthropic.APIStatusError as error:
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "type": error.type,
            "message": error.api_message,
            "request_id": error.request_id,
        }
    return {"class": None}


if __name__ == "__main__":
    main(*sys.argv[1:])
