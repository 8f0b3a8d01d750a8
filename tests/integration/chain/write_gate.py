"""Proxies before Postgres and the chain's node through which one process talks, so that it can be killed at any write.

A process that is killed leaves behind what it wrote, and nothing else. So the states in which a kill can leave the
world are those after each of its writes: a statement that changed a row, a commit, a transaction or a block that the
chain took. `WriteGate` counts them and kills the process (SIGKILL) after the chosen one took effect, before the process
hears of it. A statement that changed nothing is no write, nor is one within a transaction before its commit.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
from aiohttp import web

from sparewatt.machine.spawn import free_port

READY_S = 10.0
_WRITING = re.compile(rb"\b(INSERT\s+INTO|UPDATE\s+\w+\s+SET|UPDATE\s+\w+\s+\w+\s+SET|DELETE\s+FROM)\b", re.IGNORECASE)
_CHAIN_WRITES = (b'"eth_sendRawTransaction"', b'"evm_mine"')


@dataclass
class WriteGate:
    """Counts the writes of one process, and kills it after one of them. Used from two threads."""

    pid: int | None = None
    """Of the process that is killed."""
    log: list[str] = field(default_factory=list)
    """What was written since the gate was armed."""
    killed_after: str | None = None
    _kill_at: int | None = None

    def arm(self, number: int | None) -> None:
        """Kill after this many writes from now on; None only counts."""
        self.log, self.killed_after, self._kill_at = [], None, number

    def pass_on(self, what: str) -> bool:
        """After each write. False if it was the last one: the process does not hear of it."""
        self.log.append(what)
        if self._kill_at is None or len(self.log) < self._kill_at:
            return True
        self.killed_after, self._kill_at = what, None
        assert self.pid is not None
        os.kill(self.pid, signal.SIGKILL)
        return False


# Postgres


class _PgConnection:
    """One connection of the process. It relays both directions, and holds back the reply to a write until it counts."""

    def __init__(self, gate: WriteGate, client: _Streams, server: _Streams) -> None:
        self._gate, self._client, self._server = gate, client, server
        self._texts: dict[bytes, bytes] = {}
        self._writing: bytes | None = None
        """The statement whose reply is held back."""
        self._uncommitted = False

    async def run(self) -> None:
        """Until one of both ends is gone."""
        relays = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._replies())]
        try:
            await asyncio.wait(relays, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for relay in relays:
                relay.cancel()
            for _, writer in (self._client, self._server):
                writer.transport.abort()

    async def _requests(self) -> None:
        reader, writer = self._client[0], self._server[1]
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            start = await reader.readexactly(4)
            writer.write(start + await reader.readexactly(_length(start) - 4))
            while True:
                kind, message = await _read_message(reader)
                self._note(kind, message[5:])
                writer.write(message)

    def _note(self, kind: bytes, payload: bytes) -> None:
        match kind:
            case b"P":
                name, text, *_ = payload.split(b"\0", 2)
                self._texts[name] = text
            case b"B":
                self._note_text(self._texts.get(payload.split(b"\0", 2)[1], b""))
            case b"Q":
                self._note_text(payload.rstrip(b"\0"))
            case _:
                pass

    def _note_text(self, text: bytes) -> None:
        if _WRITING.search(text) or text.upper().startswith((b"COMMIT", b"ROLLBACK")):
            self._writing = text

    async def _replies(self) -> None:
        reader, writer, held, changed = self._server[0], self._client[1], bytearray(), False
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, message = await _read_message(reader)
                held += message
                if self._writing is None:
                    writer.write(bytes(held))
                    held.clear()
                elif kind == b"C":
                    changed |= not message[5:].rstrip(b"\0").endswith(b" 0")
                elif kind == b"Z":
                    if not self._passes(self._writing, changed=changed, is_over=message[5:] == b"I"):
                        return
                    writer.write(bytes(held))
                    held.clear()
                    self._writing, changed = None, False

    def _passes(self, text: bytes, *, changed: bool, is_over: bool) -> bool:
        is_end = text.upper().startswith((b"COMMIT", b"ROLLBACK"))
        self._uncommitted |= changed and not is_end
        if not is_over or not self._uncommitted:
            return True
        self._uncommitted = False
        return text.upper().startswith(b"ROLLBACK") or self._gate.pass_on(" ".join(text.decode().split())[:60])


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _length(word: bytes) -> int:
    (length,) = struct.unpack("!i", word)
    return int(length)


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Its type, and all of its bytes: the type, the length of the rest, the rest."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(_length(head[1:]) - 4)


@asynccontextmanager
async def _postgres_proxy(gate: WriteGate, dsn: str, folder: Path) -> AsyncIterator[str]:
    """Its connection string."""
    options = {name: values[0] for name, values in parse_qs(urlsplit(dsn).query).items()}
    name = f".s.PGSQL.{options['port']}"

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_unix_connection(str(Path(options["host"]) / name))
        await _PgConnection(gate, (reader, writer), upstream).run()

    server = await asyncio.start_unix_server(relay, str(folder / name))
    try:
        yield dsn.replace(f"host={options['host']}", f"host={folder}")
    finally:
        server.close()


# the chain's node


@asynccontextmanager
async def _chain_proxy(gate: WriteGate, url: str) -> AsyncIterator[str]:
    """Its address."""
    session = aiohttp.ClientSession()

    async def relay(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with session.post(url, data=body, headers={"content-type": "application/json"}) as reply:
            text = await reply.read()
        written = next((each.decode().strip('"') for each in _CHAIN_WRITES if each in body), None)
        if written is not None and b'"error"' not in text and not gate.pass_on(written):
            await asyncio.sleep(READY_S)  # nobody is there to hear of it
        return web.Response(body=text, content_type="application/json")

    app, port = web.Application(client_max_size=1 << 24), free_port()
    app.router.add_post("/", relay)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
        await session.close()


@dataclass(frozen=True)
class GatedAddresses:
    gate: WriteGate
    dsn: str
    chain_url: str


@contextmanager
def gated(dsn: str, chain_url: str, folder: Path) -> Iterator[GatedAddresses]:
    """Both proxies, in a thread of their own: a test waits for processes without a loop."""
    gate, ready, found = WriteGate(), threading.Event(), list[GatedAddresses]()
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(stopped.set))
        async with _postgres_proxy(gate, dsn, folder) as own_dsn, _chain_proxy(gate, chain_url) as own_url:
            found.append(GatedAddresses(gate, own_dsn, own_url))
            ready.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(READY_S), "the proxies do not start"
        yield found[0]
    finally:
        stop[0]()
        thread.join(READY_S)
