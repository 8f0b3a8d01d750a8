"""A bounded send queue that batches: all frames put in one tick of the event loop leave as one WebSocket message.

Putting never waits. Back-pressure shows as a growing queue; a peer that stops reading ends the link.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from sparewatt.core.errors import LinkLost
from sparewatt.core.limits import MIB
from sparewatt.link.sockets import LINK_BATCH_BYTES, Socket

LINK_SEND_QUEUE_BYTES_MAX = 64 * MIB
"""Frames that may wait on one link before it counts as stuck and is closed."""
LINK_SEND_S = 60.0
"""A peer that makes no room for the next message for this long never will; a full one over 1 Mbit/s takes 9 s."""


class SendQueue:
    """The frames of one link. Before `attach` they are only collected."""

    def __init__(self, *, before_sending: Callable[[], None] | None = None) -> None:
        """`before_sending` is called whenever frames are about to leave: for what must be on disk by then."""
        self._before_sending = before_sending
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._socket: Socket | None = None
        self._on_stuck: Callable[[LinkLost], None] = _ignore
        self._on_empty: Callable[[], None] | None = None
        self._is_due = False
        self._is_closed = False
        self._has_overflowed = False
        self._send_timer: asyncio.TimerHandle | None = None

    def attach(self, socket: Socket, *, on_stuck: Callable[[LinkLost], None]) -> None:
        """From here on, send at the end of each tick. `on_stuck` is called once, from the event loop: end the link."""
        self._socket = socket
        self._call_soon = asyncio.get_running_loop().call_soon  # looked up once: that takes a system call
        self._on_stuck = on_stuck
        if self._has_overflowed:
            self._call_soon(self._give_up)
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

    def finish(self, on_sent: Callable[[], None]) -> None:
        """Take no more frames, send those that are queued, then call `on_sent`."""
        self._is_closed = True
        self._on_empty = on_sent
        self._schedule()

    def drop(self) -> None:
        """The link is over: discard everything."""
        self._is_closed = True
        self._socket = None
        self._on_stuck = _ignore  # the link's own method: no cycle must keep what is over
        self._on_empty = None
        self._clear()
        self._stop_send_timer()

    def resume(self) -> None:
        """The socket takes messages again."""
        self._stop_send_timer()
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
            if self._send_timer is None:
                self._send_timer = asyncio.get_running_loop().call_later(LINK_SEND_S, self._give_up)
        elif self._on_empty is not None:
            on_empty, self._on_empty = self._on_empty, None
            on_empty()

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _overflow(self) -> None:
        """Frames are lost, so the link must end; in the next tick, since the caller of `put` is not done yet."""
        self._is_closed = self._has_overflowed = True
        self._clear()
        if self._socket is not None:
            self._call_soon(self._give_up)

    def _give_up(self) -> None:
        if self._socket is not None:
            on_stuck = self._on_stuck
            self.drop()
            on_stuck(LinkLost("the other end stopped reading"))

    def _clear(self) -> None:
        self._frames.clear()
        self._queued_bytes = 0

    def _next_message(self) -> bytes:
        """One frame, and as many more as keep the message below `LINK_BATCH_BYTES`, which is read in one go."""
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


def _ignore(_error: LinkLost) -> None:
    """Nobody has to be told."""
