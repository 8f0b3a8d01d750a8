"""Responses that this process is writing, by id, so that they can be cancelled and followed; and their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from sparewatt.core.errors import RateLimited, StoreUnavailable
from sparewatt.core.ids import KeyId
from sparewatt.core.log import Logger
from sparewatt.inference.responses.event_log import EventLog
from sparewatt.protocol.responses.request import Json

RESPONSES_IN_BACKGROUND_PER_KEY_MAX = 20
"""Answers of one key that are written while nobody listens; each is held in memory until it is stored."""

RESPONSES_RUNNING_MAX = 10_000
"""Answers under way at one gateway that can be cancelled by name (about 500 bytes each)."""

_log = Logger("sparewatt.gateway")


class LiveResponse(Protocol):
    """A response that is being written."""

    key_id: KeyId
    """Of the API key that it belongs to."""
    over: asyncio.Event
    log: EventLog | None
    """Its events; None unless it is written in the background."""

    @property
    def response(self) -> Json:
        """Its current state."""
        ...

    @property
    def is_kept(self) -> bool:
        """Whether its client can fetch it by its id."""
        ...

    @property
    def has_row(self) -> bool:
        """Whether the database knows of it already."""
        ...

    def cancel(self) -> None: ...

    def forget(self) -> None: ...


class ResponseRegistry:
    def __init__(self, *, share: int = 1) -> None:
        """`share`: over how many processes the background responses of one key may be spread."""
        self._per_key_max = max(1, RESPONSES_IN_BACKGROUND_PER_KEY_MAX // share)
        self._live: dict[str, LiveResponse] = {}
        self._tasks: dict[asyncio.Task[None], KeyId | None] = {}

    def add(self, live: LiveResponse) -> None:
        if len(self._live) < RESPONSES_RUNNING_MAX:
            self._live[live.response["id"]] = live

    def remove(self, live: LiveResponse) -> None:
        self._live.pop(live.response["id"], None)

    def find(self, response_id: str, *, key_id: KeyId) -> LiveResponse | None:
        """None also for one of another key."""
        live = self._live.get(response_id)
        return live if live is not None and live.key_id == key_id else None

    def ids_with_rows(self) -> list[str]:
        return [response_id for response_id, live in self._live.items() if live.has_row]

    def cancel(self, response_id: str) -> None:
        live = self._live.get(response_id)
        if live is not None:
            live.cancel()

    def refuse_too_many(self, key_id: KeyId) -> None:
        """Before a response is begun in the background. Raises RateLimited."""
        if sum(owner == key_id for owner in self._tasks.values()) >= self._per_key_max:
            raise RateLimited(
                f"This key has {RESPONSES_IN_BACKGROUND_PER_KEY_MAX} responses in the background. Wait for one to end.",
                retry_after_s=5,
            )

    def spawn(self, work: Coroutine[Any, Any, object], *, key_id: KeyId | None = None) -> None:
        """Run it as a task, which `close` waits for. `key_id`: set if it writes a background response of that key."""
        task = asyncio.get_running_loop().create_task(_guarded(work))
        self._tasks[task] = key_id
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def close(self, *, within_s: float) -> None:
        """Wait for what ends by itself, then cancel the rest; what was written of it is stored."""
        await self._wait_for_tasks(within_s)
        await self._wait_for_responses(within_s)
        for live in list(self._live.values()):
            live.cancel()
        for task in await self._wait_for_tasks(within_s):
            task.cancel()

    async def _wait_for_responses(self, within_s: float) -> None:
        """Until clients have the ends of their responses; that of a client that reads too slowly is cancelled."""
        try:
            async with asyncio.timeout(within_s):
                for live in list(self._live.values()):
                    await live.over.wait()
        except TimeoutError:
            return

    async def _wait_for_tasks(self, within_s: float) -> set[asyncio.Task[None]]:
        """Returns those that are still running."""
        if not self._tasks:
            return set()
        _, running = await asyncio.wait(list(self._tasks), timeout=within_s)
        return running


async def _guarded(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except StoreUnavailable:
        _log.warning("response_not_stored")
    except Exception as error:  # noqa: BLE001 (a process boundary: nothing awaits this task)
        _log.crash("response_crashed", error)
