"""The client for questions to the other processes of this gateway. One that does not answer in time is left out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp
import msgspec

from sparewatt.cluster.process_slot import ProcessSlot
from sparewatt.cluster.questions import PEER_BODY_BYTES_MAX, PeerQuestion

A = TypeVar("A")
T = TypeVar("T")
LOOPBACK = "127.0.0.1"


@dataclass(slots=True, eq=False)
class PeerClient:
    """Addresses processes by their number. Made before there is an event loop."""

    slot: ProcessSlot
    _session: aiohttp.ClientSession | None = None
    _sending: set[asyncio.Task[object]] = field(default_factory=set)

    async def ask(self, number: int, question: PeerQuestion[A, T], request: A) -> T | None:
        """None if that process is down, does not answer in time, or answers with an error."""
        url = f"http://{LOOPBACK}:{self.slot.peer_ports[number]}/{question.name}"
        try:
            async with (
                asyncio.timeout(question.within_s),
                self._open_session().post(url, data=msgspec.json.encode(request)) as reply,
            ):
                if reply.status != 200 or (reply.content_length or 0) > PEER_BODY_BYTES_MAX:
                    return None
                return msgspec.json.decode(await reply.read(), type=question.reply)
        except (OSError, aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return None

    async def ask_all(self, question: PeerQuestion[A, T], request: A) -> list[T]:
        """Ask all others at once. Returns the replies that came; an empty list if this is the only process."""
        replies = await asyncio.gather(*(self.ask(number, question, request) for number in self.slot.others))
        return [reply for reply in replies if reply is not None]

    def send(self, number: int, question: PeerQuestion[A, T], request: A) -> None:
        """Ask without waiting for the reply."""
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(self.ask(number, question, request))
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
