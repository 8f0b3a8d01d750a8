"""Runs a command in a lease with this process's standard streams; on a terminal in raw mode, which is restored."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import aiohttp
import msgspec

from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.errors import NoReply
from sparewatt.cli.leases.access.lease_socket import open_socket, read_notice, send_control
from sparewatt.protocol.api.lease_access import STDERR_BYTE, ExecRequest, SocketControl
from sparewatt.protocol.link.traffic import TERMINAL_MAX, TerminalResize

READ_BYTES = 32 * 1024
STDIN, STDOUT, STDERR = 0, 1, 2


def run_remote(client: ApiClient, wanted: str, command: Sequence[str], *, tty: bool | None) -> int:
    """Its exit code. Raises CliError."""
    is_tty = sys.stdin.isatty() and sys.stdout.isatty() if tty is None else tty
    return asyncio.run(_run(client, wanted, tuple(command), is_tty=is_tty))


async def _run(client: ApiClient, wanted: str, command: tuple[str, ...], *, is_tty: bool) -> int:
    async with aiohttp.ClientSession() as session:
        socket = await open_socket(client, session, path_of("leases", wanted, "exec"))
        try:
            size = _terminal_size()
            request = ExecRequest(command, is_tty, size.columns, size.rows)
            await socket.send_str(msgspec.json.encode(request).decode())
            with _raw_terminal() if is_tty else _plain_input(), _resizes(socket, is_on=is_tty):
                return await _relay(client, socket)
        finally:
            await socket.close()


async def _relay(client: ApiClient, socket: aiohttp.ClientWebSocketResponse) -> int:
    """Until the command ends. Raises CliError."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            data: bytes = message.data
            _write_all(STDERR if data[:1] == STDERR_BYTE else STDOUT, data[1:])
        elif message.type is aiohttp.WSMsgType.TEXT:
            notice = read_notice(client, message.data)
            if notice.started:
                _start_input(socket)
            if notice.ended:
                return 1 if notice.exit_code is None else notice.exit_code
    raise NoReply("The connection was lost before the command ended.", next_step="It may go on in the lease.")


def _start_input(socket: aiohttp.ClientWebSocketResponse) -> None:
    """In a thread: a file, a pipe and a terminal are read alike. It ends with the process."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(OSError, RuntimeError, asyncio.CancelledError, aiohttp.ClientError):
            while data := os.read(STDIN, READ_BYTES):
                asyncio.run_coroutine_threadsafe(socket.send_bytes(data), loop).result()
            asyncio.run_coroutine_threadsafe(send_control(socket, SocketControl(eof=True)), loop).result()

    threading.Thread(target=read, daemon=True, name="input").start()


def _write_all(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def _terminal_size() -> TerminalResize:
    found = shutil.get_terminal_size()
    return TerminalResize(min(max(1, found.columns), TERMINAL_MAX), min(max(1, found.lines), TERMINAL_MAX))


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the command, also Ctrl-C."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(STDIN)
    try:
        tty.setraw(STDIN)
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


@contextmanager
def _plain_input() -> Iterator[None]:
    yield


@contextmanager
def _resizes(socket: aiohttp.ClientWebSocketResponse, *, is_on: bool) -> Iterator[None]:
    """Tell the command when the window changes its size."""
    loop, sending = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def tell() -> None:
        task = loop.create_task(send_control(socket, SocketControl(resize=_terminal_size())))
        sending.add(task)
        task.add_done_callback(sending.discard)

    if not is_on or not hasattr(signal, "SIGWINCH"):
        yield
        return
    loop.add_signal_handler(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
