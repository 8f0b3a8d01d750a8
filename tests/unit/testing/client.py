"""What the tests of the engine share: a small client, and a clock that never advances."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from sparewatt.core.clock import Clock, Timer
from sparewatt.testing import EngineSettings, InstantClock, running_engine

MODEL = "stub"
CEILING_S = 20.0
"""After this long a test that waits for something gives up."""


class StillClock:
    """Time never passes: what waits, waits until it is cancelled."""

    def now_s(self) -> float:
        return 0.0

    def unix_s(self) -> float:
        return 1_750_000_000.0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return NoTimer()


class NoTimer:
    def cancel(self) -> None: ...


class Client:
    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self.base_url = base_url
        self.session = session

    async def get(self, path: str) -> Any:
        async with self.session.get(self.base_url + path) as response:
            return await response.json()

    async def post(self, path: str, **body: Any) -> Any:
        status, reply = await self.try_post(path, **body)
        assert status == 200, reply
        return reply

    async def try_post(self, path: str, **body: Any) -> tuple[int, Any]:
        """For `/v1` paths the model is filled in."""
        async with self.session.post(self.base_url + path, json=_with_model(path, body)) as response:
            return response.status, await response.json()

    async def stream(self, path: str, **body: Any) -> list[Any]:
        """All chunks of a stream that ends as it should."""
        async with self.open(path, **body) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/event-stream"
            events = (await response.read()).decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    @asynccontextmanager
    async def open(self, path: str, **body: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        given = _with_model(path, {"stream": True, **body})
        async with self.session.post(self.base_url + path, json=given) as response:
            yield response

    async def fault(self, **fault: Any) -> None:
        await self.post("/engine/faults", **fault)

    async def stats(self) -> dict[str, int]:
        return dict(await self.get("/engine/stats"))


@asynccontextmanager
async def engine_client(settings: EngineSettings | None = None, *, clock: Clock | None = None) -> AsyncIterator[Client]:
    """A running engine for which all waits are over at once, unless another clock is given."""
    chosen = settings or EngineSettings(models=(MODEL,))
    timeout = aiohttp.ClientTimeout(total=CEILING_S)
    async with (
        running_engine(chosen, clock=clock or InstantClock()) as base_url,
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        yield Client(base_url, session)


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Poll until `check` holds."""
    async with asyncio.timeout(CEILING_S):
        while not await check():  # noqa: ASYNC110 - what is polled lies behind HTTP, where no event can be awaited
            await asyncio.sleep(0.005)


def chat(content: str, *, prefill: str | None = None) -> list[dict[str, str]]:
    messages = [{"role": "user", "content": content}]
    return messages if prefill is None else [*messages, {"role": "assistant", "content": prefill}]


def joined(chunks: Iterable[Any], *, index: int = 0) -> str:
    """The text of one choice of a chat stream."""
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["index"] == index
    )


def _with_model(path: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"model": MODEL, **body} if path.startswith("/v1/") else body
