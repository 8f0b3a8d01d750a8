"""Many streamed chats at given moments, over loopback: when each first token came, when each end, and what was wrong.

An open loop: a request is sent when its moment has come, however late the others are. Bytes are kept as they arrive and
read only after the last one, so that checking the texts takes no time from measuring them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from sparewatt.testing import expected_text, render_chat

_TEXT = re.compile(rb'"content":\s?"[^"]')
"""A piece of text that is not empty: some servers open with an empty one."""

_DONE = b"data: [DONE]"
_WORDS = ("lamp", "tree", "iron", "blue", "stone", "walks", "over", "seven", "rivers", "green", "north", "paper")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send chats: a gateway, a router or a model server itself."""

    root_url: str
    model: str
    api_key: str = ""


@dataclass(slots=True)
class Streamed:
    """One request. Times are seconds since it was sent; None is never."""

    prompt: str
    max_tokens: int
    first_token_s: float | None = None
    ended_s: float | None = None
    status: int = 0
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)

    @property
    def lost(self) -> str | None:
        """Why it does not count as answered; None when every token is as it must be."""
        if self.error or self.status != 200:
            return self.error or f"status {self.status}"
        if _DONE not in self.body:
            return "no [DONE]"
        wanted = expected_text(
            render_chat([{"role": "user", "content": self.prompt}]),
            max_tokens=self.max_tokens,
        )
        return None if self.text() == wanted else "another text"

    def text(self) -> str:
        events = [line[6:] for line in bytes(self.body).splitlines() if line.startswith(b"data: {")]
        choices = [choice for event in events for choice in json.loads(event).get("choices", ())]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


def prompt_of(number: int, *, words: int) -> str:
    """Its own number first, so that no two prompts begin alike."""
    rng = random.Random(f"prompt {number}")  # noqa: S311 (repeatable)
    return " ".join([str(number), *rng.choices(_WORDS, k=words - 1)])


def poisson_arrivals_s(count: int, *, rate: float, seed: int) -> list[float]:
    rng = random.Random(f"arrivals {seed}")  # noqa: S311 (repeatable)
    now_s, found = 0.0, []
    for _ in range(count):
        now_s += rng.expovariate(rate)
        found.append(now_s)
    return found


async def stream_all(
    endpoint: Endpoint, prompts: Sequence[str], arrivals_s: Sequence[float], *, max_tokens: int, timeout_s: float
) -> list[Streamed]:
    """Send each prompt at its moment; returns when all are over, each after `timeout_s` at the latest."""
    asked = [Streamed(prompt, max_tokens) for prompt in prompts]
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        start_s = time.monotonic() + 0.1
        async with asyncio.TaskGroup() as tasks:
            for one, at_s in zip(asked, arrivals_s, strict=True):
                tasks.create_task(_send_at(session, endpoint, one, start_s + at_s))
    return asked


async def _send_at(session: aiohttp.ClientSession, endpoint: Endpoint, one: Streamed, when_s: float) -> None:
    await asyncio.sleep(max(0.0, when_s - time.monotonic()))
    try:
        await _stream(session, endpoint, one)
    except TimeoutError:
        one.error = "timed out"
    except (aiohttp.ClientError, OSError) as error:
        one.error = str(error) or type(error).__name__


async def _stream(session: aiohttp.ClientSession, endpoint: Endpoint, one: Streamed) -> None:
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": one.prompt}],
        "max_tokens": one.max_tokens,
        "stream": True,
    }
    headers = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    sent_s = time.monotonic()
    async with session.post(f"{endpoint.root_url}/v1/chat/completions", json=body, headers=headers) as reply:
        one.status = reply.status
        one.headers = {name.lower(): value for name, value in reply.headers.items()}
        async for chunk in reply.content.iter_any():
            one.body += chunk
            if one.first_token_s is None and _TEXT.search(one.body):
                one.first_token_s = time.monotonic() - sent_s
    one.ended_s = time.monotonic() - sent_s


async def wait_until_answering(endpoint: Endpoint, *, ceiling_s: float) -> None:
    """Ask until a whole answer comes."""
    deadline_s = time.monotonic() + ceiling_s
    while time.monotonic() < deadline_s:
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            [one] = await stream_all(endpoint, ["Are you there?"], [0.0], max_tokens=2, timeout_s=5.0)
            if one.lost is None:
                return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{endpoint.root_url} gave no answer within {ceiling_s:.0f} s")
