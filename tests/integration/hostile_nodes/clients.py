"""Clients of an attacked network: what they ask, what they could read of the answer, and how long they waited."""

from __future__ import annotations

import asyncio
import json
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from sparewatt.testing.engine.text import count_tokens, expected_text, render_chat
from tests.integration.hostile_nodes.trapping import MARKER

ANSWER_TOKENS = 24
TOKENS_MAX = 4 * ANSWER_TOKENS
WHOLE_EVERY = 4
"""One request in so many is not streamed."""
LINE_BYTES_MAX = 1 << 22
ERROR_CHARS_MAX = 200


@dataclass(slots=True, kw_only=True)
class Question:
    model: str
    text: str
    stream: bool = True
    only: str | None = None
    """The node that must answer; then the answer may be as long as it likes, since what it costs is in question."""

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.text}]

    def body(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"model": self.model, "messages": self.messages, "stream": self.stream}
        if self.stream:
            asked["stream_options"] = {"include_usage": True}
        if self.only is not None:
            asked["provider"] = {"only": [self.only]}
        else:
            asked["max_tokens"] = TOKENS_MAX
        return asked

    @property
    def prompt_tokens(self) -> int:
        return count_tokens(render_chat(self.messages))

    @property
    def expected(self) -> str:
        return expected_text(render_chat(self.messages))


def question(model: str, number: int, *, topic: str, only: str | None = None) -> Question:
    text = f"[answer {ANSWER_TOKENS}] question {number} about {topic}"
    return Question(model=model, text=text, stream=number % WHOLE_EVERY != WHOLE_EVERY - 1, only=only)


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request, as its client saw it."""

    question: Question
    wait_s: float = 0.0
    status: int = 0
    """0: no reply in time, or none at all."""
    is_whole: bool = False
    """Whether the answer came to its end, without an error."""
    text: str = ""
    """Of the known fields of the first choice: what a client's library shows."""
    error: str | None = None
    job: str | None = None
    node: str | None = None
    leaked: bool = False
    """Whether a hostile node's error text came through."""
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_served(self) -> bool:
        return self.status == 200 and self.is_whole and self.error is None

    @property
    def is_genuine(self) -> bool:
        return self.text == self.question.expected

    @property
    def readable_tokens(self) -> int:
        """Of what a person can see: characters without a width are not."""
        return count_tokens("".join(each for each in self.text if unicodedata.category(each) != "Cf"))


async def ask(session: aiohttp.ClientSession, root_url: str, key: str, asked: Question, *, timeout_s: float) -> Asked:
    """One request to its end, or until its client has no more patience."""
    found, began_s = Asked(question=asked), time.monotonic()
    headers = {"authorization": f"Bearer {key}"}
    try:
        async with asyncio.timeout(timeout_s):
            url = f"{root_url}/v1/chat/completions"
            async with session.post(url, json=asked.body(), headers=headers) as reply:
                await _read(found, reply)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:
        found.error = f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]
    found.wait_s = time.monotonic() - began_s
    return found


async def _read(found: Asked, reply: aiohttp.ClientResponse) -> None:
    found.status = reply.status
    found.job, found.node = reply.headers.get("x-sparewatt-match-id"), reply.headers.get("x-sparewatt-node")
    found.leaked = MARKER in str(reply.headers)
    if reply.status == 200 and found.question.stream:
        async for line in reply.content:
            _read_line(found, line.strip())
        return
    body = await reply.read()
    found.leaked |= MARKER.encode() in body
    told = json.loads(body)
    if reply.status != 200:
        found.error = str(told.get("error", told))[:ERROR_CHARS_MAX]
        return
    found.text = _readable(told["choices"][0]["message"])
    found.is_whole = True
    found.usage = told.get("usage") or {}


def _read_line(found: Asked, line: bytes) -> None:
    found.leaked |= MARKER.encode() in line
    if not line.startswith(b"data: "):
        return
    if line == b"data: [DONE]":
        found.is_whole = found.error is None
        return
    chunk = json.loads(line[6:])
    if "error" in chunk:
        found.error = str(chunk["error"])[:ERROR_CHARS_MAX]
    found.usage = chunk.get("usage") or found.usage
    for choice in chunk.get("choices") or ():
        if choice.get("index", 0) == 0:
            found.text += _readable(choice.get("delta") or {})


def _readable(fields: Mapping[str, Any]) -> str:
    calls = "".join((call.get("function") or {}).get("arguments") or "" for call in fields.get("tool_calls") or ())
    return (fields.get("content") or "") + (fields.get("reasoning_content") or fields.get("reasoning") or "") + calls
