"""The owner's commands that free the machine's cards for a lease and bring the model server back.

They run without a shell, for a bounded time, in a process group of their own. What they print goes to a file of the
owner's, of which only the end is kept: the agent's log never has it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from sparewatt.core.errors import InvalidField
from sparewatt.machine.data_dir import write_private

LOG_NAME = "lease_commands.log"
OUTPUT_BYTES_MAX = 64 * 1024
COMMAND_S = 120.0
COMMAND_CHARS_MAX = 1_000
REST_S = 1.0
"""For the rest of the output: a server that the command left behind may keep it open for ever."""


class CommandFailed(Exception):
    """Its text says how, without what the command printed."""


def words_of(command: str) -> list[str]:
    """As a shell would split it. Raises InvalidField."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidField(f"The command cannot be split into words: {error}.", param="command") from None
    if not words:
        raise InvalidField("The command is empty.", param="command")
    return words


async def run_owner_command(command: str, *, data_dir: Path, timeout_s: float = COMMAND_S) -> None:
    """Raises CommandFailed."""
    tail = bytearray()
    try:
        words = words_of(command)
        async with _collected(tail) as output:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            output.close()  # its own copy is the last one
            status = await _ended(process, timeout_s)
    except (OSError, InvalidField) as error:
        raise CommandFailed(f"the owner's command cannot be started: {error}") from None
    finally:
        with suppress(OSError):
            await asyncio.to_thread(write_private, data_dir / LOG_NAME, bytes(tail))
    if status != 0:
        raise CommandFailed(f"the owner's command ended with status {status}; {data_dir / LOG_NAME} has its output")


@asynccontextmanager
async def _collected(tail: bytearray) -> AsyncIterator[IO[bytes]]:
    """Where a command writes, which it may leave open to a server of its own. The end of it is kept in `tail`."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader()
    pipe, output = os.fdopen(read_end, "rb", buffering=0), os.fdopen(write_end, "wb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    collecting = asyncio.create_task(_collect(reader, tail))
    try:
        yield output
        await asyncio.wait({collecting}, timeout=REST_S)
    finally:
        output.close()
        collecting.cancel()
        transport.close()


async def _collect(reader: asyncio.StreamReader, tail: bytearray) -> None:
    while piece := await reader.read(8_192):
        tail += piece
        del tail[:-OUTPUT_BYTES_MAX]


async def _ended(process: asyncio.subprocess.Process, timeout_s: float) -> int:
    """Its status. Raises CommandFailed if it takes too long; then it is killed, with all that it started."""
    try:
        async with asyncio.timeout(timeout_s):
            return await process.wait()
    except TimeoutError:
        raise CommandFailed(f"the owner's command took longer than {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
