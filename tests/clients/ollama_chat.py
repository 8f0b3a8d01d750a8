"""What a user of Ollama's Python client does, with nothing of ours imported; prints what happened as JSON.

python ollama_chat.py ROOT_URL API_KEY MODEL. Before that it prints a line when its long answer has begun to arrive: a
test may kill the node that writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import ollama

QUESTION = "What is the weather in Rome?"
RESULT = "sunny, 21 degrees"
FOLLOW_UP = "And tomorrow? Grüße 🙂"
LONG_TOKENS, SHORT_TOKENS = 40, 6
WORDS = 12_000
"""More than the context holds."""
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
TIMEOUT_S = 60.0


def main(root_url: str, api_key: str, model: str) -> None:
    client = ollama.Client(root_url, headers={"Authorization": f"Bearer {api_key}"}, timeout=TIMEOUT_S)
    stranger = ollama.Client(root_url, headers={"Authorization": "Bearer sk-wrong"}, timeout=TIMEOUT_S)
    short = {"num_predict": SHORT_TOKENS, "num_ctx": 4096}
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    full: list[Any] = [{"role": "user", "content": "word " * WORDS}]

    call = client.chat(model, messages, tools=TOOLS)
    messages += [call.message, {"role": "tool", "tool_name": "get_weather", "content": RESULT}]
    long = _streamed(client, model, messages)
    messages += [{"role": "assistant", "content": long["text"]}, {"role": "user", "content": FOLLOW_UP}]
    last = client.chat(model, messages, tools=TOOLS, options=short)
    report = {
        "version": version("ollama"),
        "models": [each.model for each in client.list().models],
        "running": [each.model for each in client.ps().models],
        "capabilities": client.show(model).capabilities,
        "call": _calls(call.message),
        "streamed_call": [
            each for part in client.chat(model, messages[:1], tools=TOOLS, stream=True) for each in _calls(part.message)
        ],
        "long": long,
        "last": {"text": last.message.content, "done_reason": last.done_reason, "usage": _counts(last)},
        "tagged": client.chat(f"{model}:latest", messages[:1], options=short, keep_alive="5m").message.content,
        "generated": client.generate(model, QUESTION, options=short).response,
        "raw": client.generate(model, "Once upon", raw=True, options=short).response,
        "loaded": client.generate(model).done_reason,
        "json": client.chat(model, messages[:1], format="json").message.content,
        "embedded": [list(vector) for vector in client.embed(model, ["one", "two"], dimensions=8).embeddings],
        "full": error_of(lambda: client.chat(model, full)),
        "full_streamed": error_of(lambda: list(client.chat(model, full, stream=True))),
        "wrong_key": error_of(lambda: stranger.chat(model, messages[:1])),
        "unknown_model": error_of(lambda: client.chat("no-such-model", messages[:1])),
        "malformed": error_of(lambda: client.chat(model, messages[:1], options={"temperature": "hot"})),
        "refused": error_of(lambda: client.generate(model, QUESTION, template="{{ .Prompt }}")),
        "pull": error_of(lambda: client.pull(model)),
    }
    json.dump(report, sys.stdout)


def _streamed(client: ollama.Client, model: str, messages: list[Any]) -> dict[str, Any]:
    pieces: list[str] = []
    last: Any = None
    for part in client.chat(model, messages, tools=TOOLS, options={"num_predict": LONG_TOKENS}, stream=True):
        if part.message.content:
            pieces.append(part.message.content)
            if len(pieces) == 2:
                sys.stdout.write("writing\n")
                sys.stdout.flush()
        last = part
    return {
        "text": "".join(pieces),
        "pieces": len(pieces),
        "done": last.done,
        "done_reason": last.done_reason,
        "usage": _counts(last),
    }


def _calls(message: Any) -> list[Any]:
    return [[call.function.name, dict(call.function.arguments)] for call in message.tool_calls or ()]


def _counts(part: Any) -> list[int]:
    return [part.prompt_eval_count, part.eval_count]


def error_of(call: Callable[[], object]) -> dict[str, Any]:
    try:
        call()
    except ollama.ResponseError as error:
        return {"class": type(error).__name__, "status": error.status_code, "message": error.error}
    return {"class": None}


if __name__ == "__main__":
    main(*sys.argv[1:])
