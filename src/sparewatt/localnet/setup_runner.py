"""Commands that install something beside a running network, one after the other: two would write the same files."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.machine.logs import read_tail
from sparewatt.machine.spawn import exits_within, kill_group, spawn

SETUP_S = 900.0
"""90 MB at a megabit per second, and unpacking them."""


class SetupRunner:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, command: str, *, what: str, log_path: Path) -> None:
        """Raises StartupError with the end of the log."""
        async with self._lock:
            process = await spawn(shlex.split(command), env=os.environ, log_path=log_path, death_signal=signal.SIGKILL)
            try:
                if not await exits_within(process, SETUP_S):
                    raise StartupError(f"Setting up {what} took more than {SETUP_S:.0f} s.")
            finally:
                kill_group(process)
        if process.returncode != 0:
            raise StartupError(f"{what.capitalize()} cannot be set up. The end of the log:\n{read_tail(log_path)}")
