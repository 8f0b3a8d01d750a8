"""Responses that are being written at this gateway: known by name, so that they can be cancelled and followed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from sparewatt.core.errors import RateLimited, StoreUnavailable
from sparewatt.core.ids import KeyId
from sparewatt.core.limits import RESPONSES_IN_BACKGROUND_PER_KEY_MAX, RESPONSES_RUNNING_MAX
from sparewatt.core.log import Log
from sparewatt.gateway.openai.responses.event_log import EventLog
from sparewatt.protocol.responses.request import Json

_log = Log("sparewatt.gateway")


class LiveResponse(Protocol):
    key_id: KeyId
    over: asyncio.Event
    log: EventLog | None

    @property
    def response(self) -> Json:
        """As it stands."""
        ...

    @property
    def is_stored(self) -> bool: ...

    def cancel(self) -> None: ...


class LiveResponses:
    """All of them at this gateway, and the tasks of those that nobody listens to."""

    def __init__(self, *, share: int = 1) -> None:
        """`share`: of how many processes that a key's answers in the background may be spread over."""
        self._per_key_max = max(1, RESPONSES_IN_BACKGROUND_PER_KEY_MAX // share)
        self._live: dict[str, LiveResponse] = {}
        self._tasks: dict[asyncio.Task[None], KeyId | None] = {}

    def add(self, live: LiveResponse) -> None:
        if len(self._live) < RESPONSES_RUNNING_MAX:
            self._live[live.response["id"]] = live

    def remove(self, live: LiveResponse) -> None:
        self._live.pop(live.response["id"], None)

    def find(self, response_id: str, *, key_id: KeyId) -> LiveResponse | None:
        live = self._live.get(response_id)
        return live if live is not None and live.key_id == key_id else None

    def stored_ids(self) -> list[str]:
        return [response_id for response_id, live in self._live.items() if live.is_stored]

    def cancel(self, response_id: str) -> None:
        live = self._live.get(response_id)
        if live is not None:
            live.cancel()

    def refuse_too_many(self, key_id: KeyId) -> None:
        """Raises RateLimited."""
        if sum(owner == key_id for owner in self._tasks.values()) >= self._per_key_max:
            raise RateLimited(
                f"This key has {RESPONSES_IN_BACKGROUND_PER_KEY_MAX} responses in the background. Wait for one to end.",
                retry_after_s=5,
            )

    def spawn(self, work: Coroutine[Any, Any, None], *, key_id: KeyId | None = None) -> None:
        """Do it beside what clients wait for. A gateway that stops waits for it. `key_id`: whose answer it writes."""
        task = asyncio.get_running_loop().create_task(_guarded(work))
        self._tasks[task] = key_id
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def close(self, *, within_s: float) -> None:
        """Let end what is about to, cancel the rest, and keep what was written of it."""
        await self._settled(within_s)
        await self._written(within_s)
        for live in list(self._live.values()):
            live.cancel()
        for task in await self._settled(within_s):
            task.cancel()

    async def _written(self, within_s: float) -> None:
        """Until clients have the ends of what is over: one that is slow gets less, and hears that."""
        try:
            async with asyncio.timeout(within_s):
                for live in list(self._live.values()):
                    await live.over.wait()
        except TimeoutError:
            return

    async def _settled(self, within_s: float) -> set[asyncio.Task[None]]:
        """Tasks that are not over by then."""
        if not self._tasks:
            return set()
        _, late = await asyncio.wait(list(self._tasks), timeout=within_s)
        return late


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except StoreUnavailable:
        _log.warning("response_not_stored")
    except Exception:  # noqa: BLE001 (a process boundary: nobody waits for this task)
        _log.crash("response_crashed")
