"""What the link needs of a WebSocket: messages come in by a call, and go out without waiting.

There are three kinds behind it, and one suite of tests for all: picows (`picows_sockets.py`), aiohttp
(`aiohttp_sockets.py`) and a pair in memory (`testing/memory_socket.py`). Nothing here knows what a message holds.
"""

from __future__ import annotations

import abc
import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sparewatt.core.errors import LinkError, LinkLost, ProtocolViolation
from sparewatt.core.limits import LINK_EARLY_BYTES_MAX

CLOSE_S = 2.0
"""For the other end to answer a close; then the connection is cut."""
_MESSAGE_OVERHEAD_BYTES = 128
"""Counted for each early message, so that empty ones are bounded too."""

CLOSED = "the other end closed the socket"
BROKEN = "it broke the WebSocket protocol"
NOT_BINARY = "the link carries binary messages only"


class SocketListener(Protocol):
    """Who is at work on a socket. Nothing is called after `lost`, nor after the user's own `close`."""

    def receive(self, message: bytes) -> None:
        """Act on one message. Raises ProtocolViolation to end the connection."""
        ...

    def on_lost(self, error: LinkError) -> None:
        """There will be no more: LinkLost, or the ProtocolViolation that ended it."""
        ...

    def resume(self) -> None:
        """The socket takes messages again."""
        ...


class Socket(abc.ABC):
    """One end of a WebSocket that is open.

    At first it is asked for messages one by one (`receive`), which is how a handshake reads best. From `attach` on it
    calls its user, synchronously, from the protocol: no task, no queue and no event for a message.
    """

    def __init__(self) -> None:
        self.is_paused = False
        """The peer does not keep up: whoever sends should wait for `resume`. What is sent anyway is kept in memory."""
        self._listener: SocketListener | None = None
        self._receive: Callable[[bytes], None] = self._buffer_early
        self._early: deque[bytes] = deque()
        self._early_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._end: LinkError | None = None

    @property
    def is_over(self) -> bool:
        """Whether either side has ended it."""
        return self._end is not None

    # for users

    def attach(self, user: SocketListener) -> None:
        """From here on `user` is called; first for what came before anybody asked."""
        self._listener = user
        early, self._early, self._early_bytes = self._early, deque(), 0
        self._receive = user.receive
        for message in early:
            self._on_message(message)

    async def receive(self) -> bytes:
        """The next message. Raises LinkLost or ProtocolViolation when there will be none."""
        while not self._early:
            if self._end is not None:
                raise self._end
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._early.popleft()
        self._early_bytes -= len(message) + _MESSAGE_OVERHEAD_BYTES
        return message

    @abc.abstractmethod
    def send(self, message: bytes) -> None:
        """Never waits. After the end it does nothing: `lost` has told, or will."""

    def close(self) -> None:
        """Say goodbye after all that was sent, then go; at once if the peer does not answer in time."""
        if self._end is None:
            self._finish(LinkLost("the socket is closed"), tell=False)
            self._close()

    def abort(self) -> None:
        """Whoever holds the connection below lets go of it. The user hears of it, the peer gets no word."""
        self._mark_lost("the socket closed")
        self._abort()

    @abc.abstractmethod
    async def wait_closed(self) -> None:
        """Until the connection below is gone."""

    # for those who implement it

    @abc.abstractmethod
    def _close(self, code: int = 1000) -> None: ...

    @abc.abstractmethod
    def _abort(self) -> None: ...

    def _on_message(self, message: bytes) -> None:
        """A message has come. What its user cannot stand ends the connection."""
        if self._end is not None:
            return
        try:
            self._receive(message)
        except Exception as error:  # noqa: BLE001 (called by a transport: here is where an error of ours is told)
            self._on_listener_error(error)

    def _on_listener_error(self, error: Exception) -> None:
        if isinstance(error, ProtocolViolation):
            self._fail(error)
            return
        self._fail(LinkLost("something broke at this end"), code=1011)
        context = {"message": "an error in what a link received", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def _fail(self, error: LinkError, *, code: int = 1002) -> None:
        """End it from here, because of what the peer did."""
        if self._end is None:
            self._finish(error)
            self._close(code)

    def _mark_lost(self, why: str = CLOSED) -> None:
        """It was ended from there."""
        if self._end is None:
            self._finish(LinkLost(why))

    def _pause(self) -> None:
        self.is_paused = True

    def _resume(self) -> None:
        self.is_paused = False
        if self._listener is not None and self._end is None:
            self._listener.resume()

    def _buffer_early(self, message: bytes) -> None:
        self._early_bytes += len(message) + _MESSAGE_OVERHEAD_BYTES
        if self._early_bytes > LINK_EARLY_BYTES_MAX:
            raise ProtocolViolation("it says more than it was asked")
        self._early.append(message)
        self._wake()

    def _finish(self, error: LinkError, *, tell: bool = True) -> None:
        self._end = error
        user, self._listener = self._listener, None
        if not tell:
            self._early.clear()
        self._wake()
        if user is not None and tell:
            user.on_lost(error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
