"""A socket listener for tests."""

from __future__ import annotations

from collections.abc import Callable

from sparewatt.core.errors import LinkError
from sparewatt.link.sockets import Socket


class RecordingListener:
    """Implements SocketListener; records every call."""

    def __init__(self, socket: Socket, *, on_message: Callable[[bytes], None] = lambda _: None) -> None:
        self.received: list[bytes] = []
        self.ends: list[LinkError] = []
        self.resumed = 0
        self._on_message = on_message
        socket.attach(self)

    def receive(self, message: bytes) -> None:
        self.received.append(message)
        self._on_message(message)

    def on_lost(self, error: LinkError) -> None:
        self.ends.append(error)

    def resume(self) -> None:
        self.resumed += 1
