"""What the life of a lease needs of a container runtime. `docker_runtime` is the real one, `testing` has a fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NewType, Protocol

from sparewatt.node.leases.runtime.model import (
    ContainerPlan,
    LeaseContainer,
    LeaseLabel,
    OutputStream,
    RestartRule,
    RuntimeAbility,
)

ImageId = NewType("ImageId", str)
"""By its content."""
Output = tuple[OutputStream, bytes]
OnProgress = Callable[[str], None]
"""One line on what is being done."""
TerminalSize = tuple[int, int]
"""Columns and rows."""


class ExecSession(Protocol):
    """One command in a running container, with its three streams."""

    async def read(self) -> Output | None:
        """What it wrote next; None once it has ended. With a terminal everything is stdout."""
        ...

    async def write(self, data: bytes) -> None:
        """To its standard input. Raises LeaseRuntimeError once it has ended."""

    async def write_eof(self) -> None:
        """Ends its standard input; its output goes on."""

    async def resize(self, size: TerminalSize) -> None:
        """Does nothing once it has ended."""

    async def exit_code(self) -> int | None:
        """None while it runs."""
        ...

    async def close(self) -> None:
        """Gives up the streams. The command gets the end of its input, and may go on."""


class LeaseRuntime(Protocol):
    """Methods raise EngineUnavailable if the engine does not answer: then nothing is known of any container."""

    async def ability(self, *, again: bool = False, on_progress: OnProgress | None = None) -> RuntimeAbility:
        """Proven by trying, once; `again` tries anew. Raises nothing: no engine is an ability, too."""
        ...

    async def pull(self, image: str, on_progress: OnProgress) -> ImageId:
        """An image that was made on this machine, or cannot be pulled but is here, is used as it is. Raises
        ImageUnavailable."""
        ...

    async def start(self, plan: ContainerPlan) -> LeaseContainer:
        """Idempotent by node, lease and term: a container that is there is adopted, and started if it has ended.
        Raises StartRefused or ImageUnavailable; then nothing of it is left."""
        ...

    async def adopt(self, label: LeaseLabel, *, restart: RestartRule, disk_mib: int) -> None:
        """For an agent that starts anew: from now on a container that is there is kept as if `start` had made it.
        Nothing is started or stopped by the call itself. Idempotent. Raises ContainerMissing."""

    async def stop(self, label: LeaseLabel, *, grace_s: float) -> None:
        """Its data stays, and it is not started again but by `start`. Idempotent."""

    async def remove(self, label: LeaseLabel) -> None:
        """With its data and its bridge, also while it runs. Idempotent."""

    async def pause(self, label: LeaseLabel) -> None:
        """Its processes stand still. Idempotent. Raises ContainerMissing."""

    async def unpause(self, label: LeaseLabel) -> None: ...

    async def container(self, label: LeaseLabel) -> LeaseContainer | None: ...

    async def containers(self) -> list[LeaseContainer]:
        """All of ours on this machine, of any node."""
        ...

    def logs(self, label: LeaseLabel, *, follow: bool, tail: int) -> AsyncIterator[Output]:
        """The last `tail` lines; with `follow` also what comes, over restarts, until the container is gone or stopped.
        Raises ContainerMissing."""
        ...

    async def exec(
        self, label: LeaseLabel, command: Sequence[str], *, tty: bool, size: TerminalSize = (80, 24)
    ) -> ExecSession:
        """Raises ContainerMissing, or StartRefused if the command cannot be started."""
        ...

    async def connect(self, label: LeaseLabel, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the container's address on its bridge. Raises ContainerMissing or PortUnreachable."""
        ...

    async def disk_used_bytes(self, label: LeaseLabel) -> int:
        """What its program has written and not deleted. Raises ContainerMissing."""
        ...

    async def run(self) -> None:
        """Until cancelled: starts ended programs again, and pauses those that fill their disk."""

    async def close(self) -> None:
        """Gives up the connection to the engine. Containers run on."""
