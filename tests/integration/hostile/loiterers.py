"""Clients that hold on to a connection and do nothing with it: readers that stall, heads that never end."""

from __future__ import annotations

import select
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.integration.hostile.raw import Wire, address_of, open_wire
from tests.integration.hostile.target import Target
from tests.integration.networks import Network
from tests.processes import wait_until

RECEIVE_BYTES = 4096
"""What the kernel may take for a reader that stalls."""

TRICKLE_S = 0.5
HALF_A_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nX-Slow: "


def long_chat(target: Target, *, key: bytes) -> bytes:
    """A stream of over a megabyte, more than may be on its way: several texts, each token with twenty others.

    Not much more either: a model server writes into its own socket what nobody reads yet.
    """
    more: dict[str, Any] = {"stream": True, "ignore_eos": True, "logprobs": True, "top_logprobs": 20, "n": 4}
    return target.chat("on and on", key=key, max_tokens=150, **more)


def is_over(held: socket.socket) -> bool:
    """Whether the other end has closed or reset it. Reads nothing."""
    poll = select.poll()
    poll.register(held, select.POLLRDHUP)
    return bool(poll.poll(0))


@dataclass(slots=True)
class Stalled:
    """Readers that took the head of a long stream, and nothing since."""

    wires: list[Wire]
    since_s: float

    def held(self) -> int:
        return sum(not is_over(wire.socket) for wire in self.wires)

    def close(self) -> None:
        for wire in self.wires:
            wire.close()


def stall(target: Target, count: int, *, key: bytes) -> Stalled:
    """All have begun when it returns."""
    wires = []
    for _ in range(count):
        wire = open_wire(target.network, timeout_s=60, receive_bytes=RECEIVE_BYTES)
        wires.append(wire)
        wire.send(long_chat(target, key=key))
    for wire in wires:
        wait_until(lambda wire=wire: bool(select.select([wire.socket], [], [], 0)[0]), "a stream has not begun")  # type: ignore[misc]
    return Stalled(wires, time.monotonic())


@dataclass(slots=True)
class Trickling:
    """A head that comes byte by byte and has no end. Knows when the other end had enough."""

    network: Network
    ended_after_s: float | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)

    def _run(self) -> None:
        began_s = time.monotonic()
        with socket.create_connection(address_of(self.network)) as sending:
            sending.sendall(HALF_A_HEAD)
            while not self._stop.wait(TRICKLE_S):
                try:
                    if is_over(sending):
                        break
                    sending.sendall(b"x")
                except OSError:
                    break
            else:
                return
        self.ended_after_s = time.monotonic() - began_s


def half_open(network: Network, count: int) -> list[socket.socket]:
    """Connections without a request: every other one has begun one."""
    held = [socket.create_connection(address_of(network), timeout=30) for _ in range(count)]
    for waiting in held[::2]:
        waiting.sendall(HALF_A_HEAD)
    return held
