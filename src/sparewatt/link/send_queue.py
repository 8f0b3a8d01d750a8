"""Frames waiting to be sent. Everything put in one turn of the event loop leaves as one WebSocket message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from sparewatt.core.errors import LinkLost
from sparewatt.core.limits import LINK_BATCH_BYTES, LINK_SEND_QUEUE_BYTES_MAX, LINK_SEND_S
from sparewatt.link.sockets import Socket

_STUCK = "the other end stopped reading"


class SendQueue:
    """A bounded queue before a socket. Putting never waits; a peer that stops reading ends the link instead.

    Before `attach` frames are only collected. `on_stuck` is called once, from the event loop: the link must end.
    `before_sending` is called whenever frames are about to leave: for what must be on disk by then.
    """

    def __init__(self, *, before_sending: Callable[[], None] | None = None) -> None:
        self._before_sending = before_sending
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._socket: Socket | None = None
        self._on_stuck: Callable[[LinkLost], None] = lambda _error: None
        self._on_empty: Callable[[], None] | None = None
        self._is_due = False
        self._is_closed = False
        self._has_overflowed = False
        self._send_timer: asyncio.TimerHandle | None = None

    def attach(self, socket: Socket, *, on_stuck: Callable[[LinkLost], None]) -> None:
        """From here on, what is put leaves at the end of the turn."""
        self._socket = socket
        self._call_soon = asyncio.get_running_loop().call_soon  # looked up once: that takes a system call
        self._on_stuck = on_stuck
        if self._has_overflowed:
            asyncio.get_running_loop().call_soon(self._give_up)
        self._schedule()

    def has_room(self, n_bytes: int) -> bool:
        return self._queued_bytes + n_bytes <= LINK_SEND_QUEUE_BYTES_MAX

    def put(self, frame: bytes) -> None:
        if self._is_closed:
            return
        if self._queued_bytes + len(frame) > LINK_SEND_QUEUE_BYTES_MAX:
            self._overflow()
            return
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        if not self._is_due:
            self._schedule()

    def finish(self, then: Callable[[], None]) -> None:
        """Take no more, send what is queued, then call `then`."""
        self._is_closed = True
        self._on_empty = then
        self._schedule()

    def drop(self) -> None:
        """The link is over: nothing more is sent or kept."""
        self._is_closed = True
        self._socket = None
        self._on_empty = None
        self._clear()
        self._set_send_timer(None)

    def resume(self) -> None:
        """The socket takes messages again."""
        self._set_send_timer(None)
        self._flush()

    def _schedule(self) -> None:
        if self._socket is not None and not self._is_due:
            self._is_due = True
            self._call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        socket = self._socket
        if socket is None:
            return
        if self._before_sending is not None:
            self._before_sending()
        while self._frames and not socket.is_paused:
            socket.send(self._next_message())
        if socket.is_paused:
            self._set_send_timer(LINK_SEND_S)
        elif self._on_empty is not None:
            then, self._on_empty = self._on_empty, None
            then()

    def _set_send_timer(self, seconds: float | None) -> None:
        """A peer that has not made room by then never will. None: it has."""
        if seconds is None:
            if self._send_timer is not None:
                self._send_timer.cancel()
                self._send_timer = None
        elif self._send_timer is None:
            self._send_timer = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _overflow(self) -> None:
        """Frames are lost, so the link must end; not now, for whoever puts is in the middle of something."""
        self._is_closed = self._has_overflowed = True
        self._clear()
        if self._socket is not None:
            asyncio.get_running_loop().call_soon(self._give_up)

    def _give_up(self) -> None:
        if self._socket is not None:
            self.drop()
            self._on_stuck(LinkLost(_STUCK))

    def _clear(self) -> None:
        self._frames.clear()
        self._queued_bytes = 0

    def _next_message(self) -> bytes:
        """A frame, and as many more as are still a small message: whoever reads it does so in one go."""
        if self._queued_bytes < LINK_BATCH_BYTES:
            message = b"".join(self._frames)
            self._clear()
            return message
        batch = [self._frames.popleft()]
        size = len(batch[0])
        while self._frames and size + len(self._frames[0]) < LINK_BATCH_BYTES:
            size += len(self._frames[0])
            batch.append(self._frames.popleft())
        self._queued_bytes -= size
        return b"".join(batch)
