"""A process of a harness that is killed (SIGKILL) at a random operation and started again, as often as it is told.

`killed_process` starts `python -m MODULE URL DSN FOLDER` and tells it seeds and numbers of kills; the module's main is
`live_and_die`. Each life is a fork: the imports are done once.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from sparewatt.chain.client import ChainClient
from sparewatt.store.connection_pool import ConnectionPool

ROOT = Path(__file__).parents[3]
OPERATIONS_MAX = 150
"""Of one life: reads and writes of the database, and requests to the chain's node."""


@asynccontextmanager
async def killed_process(
    module: str, url: str, dsn: str, folder: Path
) -> AsyncIterator[Callable[[int, int], Awaitable[None]]]:
    """What has the process live and die, by a seed and a number of kills."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, url, dsn, str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def kill(seed: int, kills: int) -> None:
        stdin.write(f"{seed} {kills}\n".encode())
        assert await stdout.readline() == b"killed\n"

    try:
        yield kill
    finally:
        stdin.close()
        await process.wait()


def live_and_die(live: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """For each line `SEED KILLS` of stdin: so many lives, then a line on stdout. `live` gets the operations of one."""
    for line in sys.stdin:
        seed, kills = map(int, line.split())
        rng = random.Random(seed)  # noqa: S311 (repeatable on purpose)
        for _ in range(kills):
            _live_once(live, operations=rng.randint(1, OPERATIONS_MAX))
        sys.stdout.write("killed\n")
        sys.stdout.flush()


def _live_once(live: Callable[[int], Coroutine[Any, Any, None]], *, operations: int) -> None:
    pid = os.fork()
    if pid == 0:
        asyncio.run(live(operations))
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status):
        sys.exit("a life ended by itself")


def kill_after(operations: int) -> None:
    """Count every operation of this process from here on, and end it without warning before or after the last."""
    left = operations

    def counted(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def do(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0 and operations % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            done = await method(*args, **kwargs)
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return do

    owners: list[tuple[Any, tuple[str, ...]]] = [
        (ConnectionPool, ("rows", "row", "value", "execute")),
        (ChainClient, ("_await_reply",)),
        (asyncpg.Connection, ("execute", "fetchrow", "fetchval")),
    ]
    for owner, names in owners:
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))
