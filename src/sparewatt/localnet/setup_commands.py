"""Installs and builds that run in the background of a starting network. The network does not wait for them.

They run one at a time, because two package managers would write the same files.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.machine.backoff import Notify
from sparewatt.machine.spawn import exits_within, kill_group, read_tail, spawn

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


async def build_dashboard(command: str | None, data: Path, setups: SetupRunner, *, notify: Notify) -> None:
    """Run `command`, unless it is None because the wheel contains the dashboard.

    Until it is built, the gateway shows a plain page.
    """
    if command is None:
        return
    try:
        await setups.run(command, what="the dashboard", log_path=data / "logs" / "web-setup.log")
    except StartupError as error:
        notify(f"No dashboard: {error.message}\nEverything else works without it.")
