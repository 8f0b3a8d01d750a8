"""The interface between a link and its WebSocket: incoming messages are callbacks, sending never waits.

There are three implementations and one contract suite for all of them: picows (`picows_sockets.py`), aiohttp
(`aiohttp_sockets.py`) and a pair in memory (`testing/memory_socket.py`). Nothing here knows what a message holds.
"""

from __future__ import annotations

import abc
import asyncio
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Protocol

from sparewatt.core.errors import LinkError, LinkFlooded, LinkLost, ProtocolViolation
from sparewatt.core.limits import KIB, MIB

LINK_BATCH_BYTES = 16 * KIB
"""Frames are batched into messages of this size, and a link is read this far before other links: under a millisecond
of work, also for tokens with twenty logprobs each.
"""
LINK_HANDSHAKE_S = 10.0
"""From opening the socket to a verified signature."""
LINK_FIRST_MESSAGE_S = 2.0
"""From opening the socket to the first message, which a node sends at once."""
LINK_EARLY_BYTES_MAX = 2 * MIB
"""Messages buffered before they are received one by one: those of the handshake are far shorter."""
CLOSE_S = 2.0
"""For the peer to answer a close frame; then the connection is aborted."""
_MESSAGE_OVERHEAD_BYTES = 128
"""Counted for each early message, so that empty ones are bounded too."""

CLOSED = "the other end closed the socket"
CLOSE_FLOODED = 1008
"""The close code for a peer that sends more than it may: WebSocket's `policy violation`."""
CLOSED_FOR = {CLOSE_FLOODED: "the other end closed the socket: too many reports were sent to it"}
"""What a close code of the peer means, where it says more than that it is over."""
BROKEN = "it broke the WebSocket protocol"
NOT_BINARY = "the link carries binary messages only"


class SocketListener(Protocol):
    """A socket calls this from `attach` on. Nothing is called after `on_lost`, nor after `Socket.close`."""

    def receive(self, message: bytes) -> None:
        """Act on one message. Raises ProtocolViolation to end the connection."""
        ...

    def on_lost(self, error: LinkError) -> None:
        """The connection is over: LinkLost, or the ProtocolViolation that ended it."""
        ...

    def resume(self) -> None:
        """The back-pressure is over: the socket takes messages again."""
        ...


class Socket(abc.ABC):
    """One end of an open WebSocket.

    During the handshake messages are awaited one by one (`receive`). From `attach` on the socket calls its listener
    synchronously from the protocol: no task, queue or event per message.
    """

    def __init__(self) -> None:
        self.is_paused = False
        """Back-pressure: the peer does not keep up. Messages that are sent anyway are buffered in memory."""
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

    # for users of a socket

    def attach(self, listener: SocketListener) -> None:
        """Call `listener` from here on, first with the messages that are already buffered.

        A socket that ended before, right after the handshake's last message, reports that at once.
        """
        if self._end is not None:
            listener.on_lost(self._end)
            return
        self._listener = listener
        early, self._early, self._early_bytes = self._early, deque(), 0
        self._receive = listener.receive
        for message in early:
            self._on_message(message)

    async def receive(self) -> bytes:
        """The next message. Raises LinkLost or ProtocolViolation when there will be none."""
        while not self._early:
            if self._end is not None:
                raise copy(self._end)
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
        """Never waits. After the end it does nothing: `on_lost` reports that."""

    def close(self) -> None:
        """Close after all that was sent; abort if the peer does not answer within `CLOSE_S`."""
        if self._end is None:
            self._finish(LinkLost("the socket is closed"), notify=False)
            self._close()

    def abort(self) -> None:
        """Drop the connection without a close frame. The listener's `on_lost` is called."""
        self._mark_lost("the socket closed")
        self._abort()

    @abc.abstractmethod
    async def wait_closed(self) -> None:
        """Until the TCP connection is gone."""

    # for implementations

    @abc.abstractmethod
    def _close(self, code: int = 1000) -> None: ...

    @abc.abstractmethod
    def _abort(self) -> None: ...

    def _on_message(self, message: bytes) -> None:
        if self._end is not None:
            return
        try:
            self._receive(message)
        except Exception as error:  # noqa: BLE001 (called by a transport, which would lose an error of ours)
            self._on_listener_error(error)

    def _on_listener_error(self, error: Exception) -> None:
        if isinstance(error, ProtocolViolation):
            self._fail(error, code=CLOSE_FLOODED if isinstance(error, LinkFlooded) else 1002)
            return
        self._fail(LinkLost("an internal error at this end"), code=1011)
        context = {"message": "an error in what a link received", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def _fail(self, error: LinkError, *, code: int = 1002) -> None:
        """End it from this side, because of what the peer did."""
        if self._end is None:
            self._finish(error)
            self._close(code)

    def _mark_lost(self, why: str = CLOSED) -> None:
        """The peer or the transport ended it."""
        if self._end is None:
            self._finish(LinkLost(why))

    def _resume(self) -> None:
        self.is_paused = False
        if self._listener is not None and self._end is None:
            self._listener.resume()

    def _buffer_early(self, message: bytes) -> None:
        self._early_bytes += len(message) + _MESSAGE_OVERHEAD_BYTES
        if self._early_bytes > LINK_EARLY_BYTES_MAX:
            raise ProtocolViolation("it sent too much before the handshake was over")
        self._early.append(message)
        self._wake()

    def _finish(self, error: LinkError, *, notify: bool = True) -> None:
        """Leaves no reference cycle, so that what came and went is freed at once, however many sockets do.

        Hence a copy of the error: the traceback of one that was raised leads to this socket.
        """
        self._end = copy(error)
        self._receive = _ignore
        listener, self._listener = self._listener, None
        if not notify:
            self._early.clear()
        self._wake()
        if listener is not None and notify:
            listener.on_lost(self._end)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _ignore(_message: bytes) -> None:
    """What comes after the end."""
