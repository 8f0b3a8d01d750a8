"""An honest client that asks short questions all the time and notes what it waits: a process, so that it shares no
interpreter with who attacks.

`python -m tests.soak.bystander HOST PORT QUESTION NOTES`, the last two being files.
"""

from __future__ import annotations

import math
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from tests.integration.hostile.raw import Wire, address_of
from tests.integration.hostile.target import Target
from tests.processes import end_process, start_process, tail, wait_until
from tests.soak.cores import OTHERS, go_first, running_on

PAUSE_S = 0.01
"""Between two questions."""

REPLY_S = 60.0
_NOTE = struct.Struct("dd")
"""When it asked, on the clock that all processes share, and what it waited."""


@dataclass(frozen=True, slots=True)
class Waits:
    p50_ms: float
    p99_ms: float
    count: int

    def __str__(self) -> str:
        return f"{self.p50_ms:.1f} / {self.p99_ms:.1f} ms"


def waits_of(seconds: Sequence[float]) -> Waits:
    ordered = sorted(seconds)
    return Waits(_share(ordered, 0.5) * 1000, _share(ordered, 0.99) * 1000, len(ordered))


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else math.nan


@dataclass(frozen=True, slots=True)
class Bystander:
    process: Popen[bytes]
    notes: Path
    log: Path

    def count(self) -> int:
        return self.notes.stat().st_size // _NOTE.size

    def between(self, began_s: float, ended_s: float) -> Waits:
        """Of what it asked within this time, and whatever it still waits for is not among them."""
        whole = self.notes.read_bytes()[: self.count() * _NOTE.size]
        return waits_of([wait_s for at_s, wait_s in _NOTE.iter_unpack(whole) if began_s <= at_s <= ended_s])

    def catch_up(self) -> None:
        """Until the question under way is answered: what held it up belongs to what came before."""
        before = self.count()
        wait_until(lambda: self.count() >= before + 2, f"others are not served: {tail(self.log)}", ceiling_s=REPLY_S)

    def check(self) -> None:
        assert self.process.poll() is None, f"the honest client was let down: {tail(self.log)}"


@contextmanager
def bystander(target: Target, folder: Path) -> Iterator[Bystander]:
    """Asks from here on."""
    question, notes, log = folder / "question", folder / "waits", folder / "bystander.log"
    question.write_bytes(target.chat("a short question"))
    notes.touch()
    host, port = address_of(target.network)
    with running_on(OTHERS):
        argv = [sys.executable, "-m", "tests.soak.bystander", host, str(port), str(question), str(notes)]
        process = start_process(argv, output=log)
        go_first([process.pid])
    found = Bystander(process, notes, log)
    try:
        wait_until(lambda: found.count() > 50, "nobody is served", ceiling_s=REPLY_S)
        yield found
        found.check()
    finally:
        end_process(process, signal.SIGTERM)


def ask_for_ever(wire: Wire, raw: bytes, notes: Path) -> None:
    with notes.open("ab", buffering=0) as file:
        while True:
            began_s = time.monotonic()
            wire.send(raw)
            reply = wire.reply()
            if reply is None or reply.status != 200:
                sys.exit(f"answered {reply.status if reply is not None else 'by closing the connection'}")
            file.write(_NOTE.pack(began_s, time.monotonic() - began_s))
            time.sleep(PAUSE_S)


def main(host: str, port: str, question: str, notes: str) -> None:
    raw = Path(question).read_bytes()
    with socket.create_connection((host, int(port)), timeout=REPLY_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_ever(Wire(connection, connection.makefile("rb")), raw, Path(notes))


if __name__ == "__main__":
    main(*sys.argv[1:])
