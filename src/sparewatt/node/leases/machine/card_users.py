"""What sits on the machine's cards, and can be stopped for a lease: by the owner's commands, or the agent's own server.

That it was stopped is noted on disk first, so that it comes back also after the agent was killed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.node.leases.machine.owner_command import CommandFailed
from sparewatt.node.leases.placed.machine_room import NoRoom

MARKER = "leases/server_stopped"
URL_CHARS_MAX = 2_000


@dataclass(slots=True, kw_only=True, eq=False)
class StoppableServer:
    """Implements CardUser."""

    data_dir: Path
    url: str
    """Where it answers, for an agent that starts while it is stopped."""
    stop: Callable[[], Awaitable[None]]
    """Both are idempotent, and raise CommandFailed or StartupError."""
    start: Callable[[], Awaitable[None]]

    async def leave(self) -> None:
        try:
            make_private_dir(self._marker.parent)
            write_private(self._marker, self.url.encode())
            await self.stop()
        except (CommandFailed, StartupError, OSError) as error:
            raise NoRoom(f"what sits on the GPU could not be stopped: {error}") from None

    async def come_back(self) -> None:
        if not self._marker.exists():
            return
        try:
            await self.start()
        except (CommandFailed, StartupError) as error:
            raise NoRoom(f"the model server could not be started again: {error}") from None
        self._marker.unlink(missing_ok=True)

    @property
    def _marker(self) -> Path:
        return self.data_dir / MARKER


def stopped_url(data_dir: Path) -> str | None:
    """Of a model server that gave way to a lease, and has not come back."""
    try:
        return (data_dir / MARKER).read_text()[:URL_CHARS_MAX]
    except OSError:
        return None
