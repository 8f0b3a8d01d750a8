"""Asking a backend for chats, and reading what comes back the way a client would."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sparewatt.localnet.demo_model import DEMO_MODEL
from sparewatt.node.backends.backend import Backend

PATH = "/v1/chat/completions"
CEILING_S = 30.0
"""After this long a test that waits for something gives up."""

POLL_S = 0.02

ENDLESS = {"ignore_eos": True, "max_tokens": 8000}
"""An answer that goes on for longer than any ceiling."""

REPEATABLE = {"temperature": 0, "seed": 7, "cache_prompt": False}
"""llama.cpp promises the same text again only if it also reads the prompt again."""


def chat(prompt: str, **options: Any) -> bytes:
    body = {"model": DEMO_MODEL, "messages": [{"role": "user", "content": prompt}], **options}
    return json.dumps(body).encode()


@dataclass(slots=True)
class Answer:
    """What a stream brought."""

    status: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    is_done: bool = False

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [choice["delta"] for event in self.events for choice in event["choices"]]

    @property
    def text(self) -> str:
        return "".join(delta.get("content") or "" for delta in self.deltas)

    @property
    def finish_reasons(self) -> list[str]:
        reasons = [choice.get("finish_reason") for event in self.events for choice in event["choices"]]
        return [reason for reason in reasons if reason is not None]

    @property
    def usages(self) -> list[dict[str, Any]]:
        return [event["usage"] for event in self.events if event.get("usage")]


async def ask_streamed(backend: Backend, body: bytes) -> Answer:
    """The whole stream; a body that was not made with `stream` fails the test."""
    answer = Answer()
    async with asyncio.timeout(CEILING_S), backend.post(PATH, body) as reply:
        answer.status = reply.status
        assert reply.content_type == "text/event-stream"
        async for data in events(reply.chunks):
            assert not answer.is_done, "something came after [DONE]"
            if data == b"[DONE]":
                answer.is_done = True
            else:
                answer.events.append(json.loads(data))
    return answer


async def ask_whole(backend: Backend, body: bytes, *, path: str = PATH) -> tuple[int, dict[str, Any]]:
    async with asyncio.timeout(CEILING_S), backend.post(path, body) as reply:
        assert reply.content_type == "application/json"
        return reply.status, json.loads(b"".join([chunk async for chunk in reply.chunks]))


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each server-sent event."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ")


async def first_content(chunks: AsyncIterator[bytes]) -> None:
    """Read until some text has come: from here on the generation is under way."""
    async for data in events(chunks):
        if any(choice["delta"].get("content") for choice in json.loads(data)["choices"]):
            return
    raise AssertionError("the stream ended without any text")


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Look again and again, with a ceiling."""
    deadline_s = time.monotonic() + CEILING_S
    while not await holds():
        assert time.monotonic() < deadline_s, f"after {CEILING_S:.0f} s: {what}"
        await asyncio.sleep(POLL_S)


async def until_running(backend: Backend, count: int) -> None:
    async def holds() -> bool:
        load = await backend.load()
        return load is not None and load.running == count

    await until(holds, f"the server does not tell that it works on {count}")
