"""What a user of the official Python client does, with nothing of ours imported; prints what happened as JSON.

python chat.py BASE_URL API_KEY MODEL. Runs under every major version of the client that we promise to work with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import openai

PROMPT: list[Any] = [
    {"role": "system", "content": "You are a quiet station master."},
    {"role": "user", "content": "Which trains leave today? Grüße 🙂"},
]
LONG: list[Any] = [{"role": "user", "content": "word " * 9000}]
"""More tokens than the context has, which only the model server can count."""
MAX_TOKENS = 12
TIMEOUT_S = 30.0


def main(base_url: str, api_key: str, model: str) -> None:
    client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0, timeout=TIMEOUT_S)
    stranger = client.with_options(api_key="sk-wrong")
    chat: dict[str, Any] = {"model": model, "messages": PROMPT, "max_tokens": MAX_TOKENS}
    create: Callable[..., Any] = client.chat.completions.create
    report = {
        "version": openai.__version__,
        "models": [each.id for each in client.models.list()],
        "model": client.models.retrieve(model).id,
        "whole": whole(create(**chat)),
        "streamed": streamed(create(**chat, stream=True, stream_options={"include_usage": True})),
        "streamed_without_usage": streamed(create(**chat, stream=True)),
        "completion": client.completions.create(model=model, prompt="Once upon", max_tokens=5).choices[0].text,
        "embedding": embedded(client.embeddings.create(model=model, input=["one", "two"], dimensions=8)),
        "wrong_key": error_of(lambda: list(stranger.models.list())),
        "wrong_key_chat": error_of(lambda: stranger.chat.completions.create(**chat)),
        "unknown_model": error_of(lambda: create(**chat | {"model": "no-such-model"})),
        "unknown_model_retrieved": error_of(lambda: client.models.retrieve("no-such-model")),
        "unknown_model_streamed": error_of(lambda: create(**chat | {"model": "no-such-model"}, stream=True)),
        "malformed": error_of(lambda: create(**chat | {"max_tokens": "many"})),
        "malformed_for_the_model": error_of(lambda: create(**chat | {"temperature": 99})),
        "overflow": error_of(lambda: create(**chat | {"messages": LONG})),
        "overflow_streamed": error_of(lambda: create(**chat | {"messages": LONG}, stream=True)),
        "overflow_of_a_text": error_of(lambda: client.completions.create(model=model, prompt=LONG[0]["content"])),
        "aborted": aborted(create(**chat | {"max_tokens": 8000}, stream=True, extra_body={"ignore_eos": True})),
        "after_abort": whole(create(**chat)),
    }
    json.dump(report, sys.stdout)


def whole(answer: Any) -> dict[str, Any]:
    (choice,) = answer.choices
    return {
        "role": choice.message.role,
        "text": choice.message.content,
        "finish_reason": choice.finish_reason,
        "usage": counts(answer.usage),
    }


def streamed(stream: Any) -> dict[str, Any]:
    chunks = list(stream)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    usage = [chunk.usage for chunk in chunks if chunk.usage]
    return {
        "role": choices[0].delta.role,
        "text": "".join(choice.delta.content or "" for choice in choices),
        "finish_reason": choices[-1].finish_reason,
        "usage": counts(usage[0]) if usage else None,
        "pieces": sum(bool(choice.delta.content) for choice in choices),
    }


def embedded(answer: Any) -> dict[str, Any]:
    """The client asks for base64 by itself, and decodes it."""
    return {"vectors": [item.embedding for item in answer.data], "tokens": answer.usage.total_tokens}


def counts(usage: Any) -> list[int]:
    return [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]


def aborted(stream: Any) -> dict[str, Any]:
    """Leave after a few chunks, as a user does who has read enough."""
    for _ in range(4):
        next(stream)
    match_id = stream.response.headers["x-sparewatt-match-id"]
    stream.close()
    return {"match_id": match_id}


def error_of(call: Callable[[], object]) -> dict[str, Any]:
    try:
        call()
    except openai.APIStatusError as error:
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": error.code,
            "param": error.param,
            "message": str(error.body["message"]) if isinstance(error.body, dict) else None,
            "request_id": error.request_id,
        }
    return {"class": None}


if __name__ == "__main__":
    main(*sys.argv[1:])
