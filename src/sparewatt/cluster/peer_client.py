"""Asking the other processes of this gateway. One that does not answer in time is left out: nothing depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import aiohttp
import msgspec

from sparewatt.cluster.process_slot import ProcessSlot
from sparewatt.cluster.questions import PeerQuestion
from sparewatt.core.limits import SIBLING_BODY_BYTES_MAX

A = TypeVar("A")
T = TypeVar("T")
LOOPBACK = "127.0.0.1"


class PeerClient:
    """Asks by number. Made before there is an event loop; `close` when there is nobody left to ask."""

    def __init__(self, slot: ProcessSlot) -> None:
        self.slot = slot
        self._session: aiohttp.ClientSession | None = None
        self._sending: set[asyncio.Task[object]] = set()

    async def ask(self, number: int, question: PeerQuestion[A, T], request: A) -> T | None:
        """None from one that is not there, does not answer in time, or answers something else."""
        url = f"http://{LOOPBACK}:{self.slot.peer_ports[number]}/{question.name}"
        try:
            async with (
                asyncio.timeout(question.within_s),
                self._open_session().post(url, data=msgspec.json.encode(request)) as reply,
            ):
                if reply.status != 200 or (reply.content_length or 0) > SIBLING_BODY_BYTES_MAX:
                    return None
                return msgspec.json.decode(await reply.read(), type=question.reply)
        except (OSError, aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return None

    async def ask_all(self, question: PeerQuestion[A, T], request: A) -> list[T]:
        """All the others at once; the replies of those that answered. An empty list where there are no others."""
        replies = await asyncio.gather(*(self.ask(number, question, request) for number in self.slot.others))
        return [reply for reply in replies if reply is not None]

    def send(self, number: int, question: PeerQuestion[A, T], request: A) -> None:
        """Without waiting for the reply."""
        self.spawn(self.ask(number, question, request))

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        if self._sending:
            await asyncio.wait(list(self._sending), timeout=1.0)
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"authorization": f"Bearer {self.slot.secret}"},
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session
