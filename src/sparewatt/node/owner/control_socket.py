"""The control socket: commands on this machine send the running agent one line of JSON, and get one back.

It is a Unix socket in the node's private data directory, which only its owner can open. Without Unix sockets (Windows,
or a path too long for one) it is a loopback port, and a command must first send the secret from that directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.rng import Rng
from sparewatt.machine.data_dir import write_private

SOCKET_FILE, PORT_FILE = "control.sock", "control.json"
PATH_BYTES_MAX = 100
"""The longest address of a socket on every Unix."""
LINE_BYTES_MAX = 1 << 20
ASK_S = 10.0
_CLIENT_FAULTS = (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
"""What a command may do wrong, which must not harm the agent."""


class ControlPort(msgspec.Struct, frozen=True):
    """The content of `control.json`, where there is no Unix socket."""

    port: int
    secret: str


class NodeNotRunning(Exception):
    """No agent answers in this data directory."""


def has_socket_files(data_dir: Path) -> bool:
    return hasattr(socket, "AF_UNIX") and len(os.fsencode(data_dir / SOCKET_FILE)) <= PATH_BYTES_MAX


@asynccontextmanager
async def serve_control(
    data_dir: Path, answer: Callable[[bytes], dict[str, Any]], *, rng: Rng, by_file: bool | None = None
) -> AsyncIterator[None]:
    """Answer commands meanwhile. The caller has locked the directory, so a socket file in it is a dead node's."""
    by_file = has_socket_files(data_dir) if by_file is None else by_file
    path = data_dir / (SOCKET_FILE if by_file else PORT_FILE)
    for leftover in (data_dir / SOCKET_FILE, data_dir / PORT_FILE):
        leftover.unlink(missing_ok=True)
    secret = None if by_file else rng.randbytes(32).hex()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(*_CLIENT_FAULTS):
            async with asyncio.timeout(ASK_S):
                await _serve(reader, writer, answer, secret=secret)
        writer.close()

    if secret is None:
        server = await asyncio.start_unix_server(serve, path, limit=LINE_BYTES_MAX)
        path.chmod(0o600)
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=LINE_BYTES_MAX)
        write_private(path, msgspec.json.encode(ControlPort(server.sockets[0].getsockname()[1], secret)))
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: Callable[[bytes], dict[str, Any]],
    *,
    secret: str | None,
) -> None:
    if secret is not None:
        sent = (await reader.readuntil(b"\n")).strip()
        if not hmac.compare_digest(sent, secret.encode()):
            return
    writer.write(msgspec.json.encode(answer(await reader.readuntil(b"\n"))) + b"\n")
    await writer.drain()


def ask(data_dir: Path, question: dict[str, Any], *, timeout_s: float = ASK_S) -> dict[str, Any]:
    """From another process on this machine. Raises NodeNotRunning."""
    try:
        with _connect(data_dir, timeout_s) as connection:
            connection.sendall(msgspec.json.encode(question) + b"\n")
            reply = _read_line(connection)
        answer: dict[str, Any] = msgspec.json.decode(reply, type=dict[str, Any])
    except (OSError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError):
        raise NodeNotRunning from None
    return answer


def _connect(data_dir: Path, timeout_s: float) -> socket.socket:
    try:
        control = msgspec.json.decode((data_dir / PORT_FILE).read_bytes(), type=ControlPort)
    except FileNotFoundError:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(os.fspath(data_dir / SOCKET_FILE))
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(("127.0.0.1", control.port), timeout=timeout_s)
    connection.sendall(f"{control.secret}\n".encode())
    return connection


def _read_line(connection: socket.socket) -> bytes:
    reply = bytearray()
    while not reply.endswith(b"\n") and len(reply) <= LINE_BYTES_MAX:
        received = connection.recv(1 << 16)
        if not received:
            break
        reply += received
    return bytes(reply)
