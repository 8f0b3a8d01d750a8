"""Asking the other processes of this gateway. Whoever does not answer in time is left out: nothing depends on one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import aiohttp
import msgspec

from sparewatt.core.limits import SIBLING_BODY_BYTES_MAX
from sparewatt.gateway.siblings.place import Place
from sparewatt.gateway.siblings.questions import Question

A = TypeVar("A")
T = TypeVar("T")
LOOPBACK = "127.0.0.1"


class Asker:
    """Asks by number. Made before there is an event loop; `close` when there is nobody left to ask."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._session: aiohttp.ClientSession | None = None
        self._telling: set[asyncio.Task[object]] = set()

    async def ask(self, number: int, question: Question[A, T], asked: A) -> T | None:
        """None from one that is not there, does not answer in time, or answers something else."""
        url = f"http://{LOOPBACK}:{self.place.sibling_ports[number]}/{question.name}"
        try:
            async with (
                asyncio.timeout(question.within_s),
                self._open_session().post(url, data=msgspec.json.encode(asked)) as reply,
            ):
                if reply.status != 200 or (reply.content_length or 0) > SIBLING_BODY_BYTES_MAX:
                    return None
                return msgspec.json.decode(await reply.read(), type=question.told)
        except (OSError, aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return None

    async def ask_all(self, question: Question[A, T], asked: A) -> list[T]:
        """All the others at once; what those said who answered."""
        answers = await asyncio.gather(*(self.ask(number, question, asked) for number in self.place.others))
        return [answer for answer in answers if answer is not None]

    def tell(self, number: int, question: Question[A, T], asked: A) -> None:
        """Without waiting for it."""
        self.spawn(self.ask(number, question, asked))

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        if self._telling:
            await asyncio.wait(list(self._telling), timeout=1.0)
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"authorization": f"Bearer {self.place.secret}"},
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session
