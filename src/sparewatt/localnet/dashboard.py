"""The dashboard of `up`, built beside everything else. Until it is there the gateway shows a plain page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.localnet.setup_runner import SetupRunner


@asynccontextmanager
async def dashboard_build_in_background(
    command: str | None, data: Path, setups: SetupRunner, *, tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """`command` builds it, and does nothing when it is built; None where a wheel brought it."""
    if command is None:
        yield
        return
    task = asyncio.create_task(_build(command, data, setups, tell=tell), name="build the dashboard")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _build(command: str, data: Path, setups: SetupRunner, *, tell: Callable[[str], None]) -> None:
    try:
        await setups.run(command, what="the dashboard", log_path=data / "logs" / "web-setup.log")
    except StartupError as error:
        tell(f"No dashboard: {error.message}\nEverything else works without it.")
