"""The container engine of this machine, Docker or podman, over its local socket: who it is, and time limits.

What goes over the socket is the Docker API by aiodocker. Two of podman's own calls are used where the Docker API cannot
say it: a network without a name server, and CDI devices. An engine on another machine is refused: bridges, limits and
the egress table are this machine's.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp
from aiodocker import Docker
from aiodocker.exceptions import DockerError

from sparewatt.node.leases.runtime.model import EngineUnavailable

ENGINE_S = 30.0
"""For any call but those that wait for a program: engines are slow while a machine is busy."""
REACHABLE_S = 5.0
LIBPOD = "v4.0.0/libpod"
INSTALL = "apt-get install --no-install-recommends podman runc netavark iptables nftables"


class EngineMissing(EngineUnavailable):
    """No socket can be used. `remedy` says what to do."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class EngineFacts:
    name: str
    """`podman` or `docker`."""
    version: str
    is_rootless: bool
    cgroup_version: int
    runtime: str
    """As `runc`."""
    data_root: str
    has_nvidia_runtime: bool

    @property
    def is_podman(self) -> bool:
        return self.name == "podman"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def socket_places(environ: Mapping[str, str]) -> list[Path]:
    """Where engines listen, in the order in which they are tried."""
    user_dir = environ.get("XDG_RUNTIME_DIR")
    users = (Path(user_dir, "podman", "podman.sock"), Path(user_dir, "docker.sock")) if user_dir else ()
    return [Path("/var/run/docker.sock"), Path("/run/podman/podman.sock"), *users]


class Which(Protocol):
    def __call__(self, name: str, /) -> str | None: ...


def find_socket(
    given: Path | None,
    *,
    environ: Mapping[str, str] = os.environ,
    places: list[Path] | None = None,
    which: Which = shutil.which,
) -> Path:
    """The owner's choice, DOCKER_HOST, or the first that is there. Raises EngineMissing."""
    host = environ.get("DOCKER_HOST", "")
    if given is None and host:
        if not host.startswith("unix://"):
            raise EngineMissing(
                f"DOCKER_HOST is {host}, which is no socket of this machine",
                remedy="Leases run on this machine only: unset DOCKER_HOST, or give --container-socket PATH.",
            )
        given = Path(host.removeprefix("unix://"))
    if given is not None:
        if not _is_socket(given):
            raise EngineMissing(f"there is no socket at {given}", remedy="Start the engine, or name its socket.")
        return given
    found = [place for place in (places if places is not None else socket_places(environ)) if _is_socket(place)]
    usable = [place for place in found if os.access(place, os.R_OK | os.W_OK)]
    if usable:
        return usable[0]
    if found:
        raise EngineMissing(
            f"this user may not use {found[0]}",
            remedy="Run the node as root, or add its user to the engine's group (usermod -aG docker USER).",
        )
    if which("dockerd") or which("podman"):
        start = "systemctl enable --now " + ("docker" if which("dockerd") else "podman.socket")
        raise EngineMissing("an engine is installed, but does not listen", remedy=f"Start it: {start}")
    raise EngineMissing("neither Docker nor podman is installed", remedy=f"Install one, as root: {INSTALL}")


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """An engine that is gone, or does not answer in time, is EngineUnavailable. DockerError is what it refuses."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except DockerError as error:
        if error.status == 900:  # aiodocker's number for: no connection
            raise EngineUnavailable(error.message) from None
        raise
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise EngineUnavailable(f"the container engine does not answer ({str(error) or 'no answer in time'})") from None


class ContainerEngine:
    """Open while the agent runs. Reconnects by itself: each call is a request of its own."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.docker = Docker(url=f"unix://{socket}")
        self._facts: EngineFacts | None = None

    async def close(self) -> None:
        await self.docker.close()

    async def facts(self) -> EngineFacts:
        if self._facts is None:
            async with within(REACHABLE_S):
                version, info = await self.docker.version(), dict(await self.docker.system.info())
            self._facts = read_facts(version, info)
        return self._facts

    async def libpod(self, path: str, body: Mapping[str, Any]) -> Any:
        """A call of podman's own API. Raises DockerError with its reason."""
        url = f"{self.docker.docker_host}/{LIBPOD}/{path}"
        async with self.docker.session.post(url, json=body) as reply:
            answer: Any = await reply.json(content_type=None)
            if reply.status >= 400:
                raise DockerError(reply.status, str((answer or {}).get("message", "refused")))
            return answer

    async def disk_usage(self) -> Any:
        """What `docker system df` shows."""
        await self.facts()
        async with self.docker.session.get(f"{self._root()}/system/df") as reply:
            return await reply.json(content_type=None)

    @asynccontextmanager
    async def logs(self, container_id: str, **parameters: str | int) -> AsyncIterator[aiohttp.StreamReader]:
        """Framed by stream, as `stream_frames` reads it: aiodocker's own method loses the stream's name."""
        await self.facts()
        url = f"{self._root()}/containers/{container_id}/logs"
        query = {"stdout": 1, "stderr": 1, **parameters}
        async with self.docker.session.get(url, params=query, timeout=aiohttp.ClientTimeout(total=None)) as reply:
            if reply.status >= 400:
                raise DockerError(reply.status, (await reply.text())[:200])
            yield reply.content

    def _root(self) -> str:
        """Of the API in the engine's own version, which is known after the first call."""
        return f"{self.docker.docker_host}/{self.docker.api_version}"


def read_facts(version: Mapping[str, Any], info: Mapping[str, Any]) -> EngineFacts:
    components = [str(each.get("Name", "")) for each in version.get("Components") or ()]
    security = " ".join(map(str, info.get("SecurityOptions") or ()))
    runtimes = info.get("Runtimes") or {}
    return EngineFacts(
        name="podman" if any("podman" in name.lower() for name in components) else "docker",
        version=str(version.get("Version", "?")),
        is_rootless=bool(info.get("Rootless")) or "rootless" in security,
        cgroup_version=2 if str(info.get("CgroupVersion", "1")) == "2" else 1,
        runtime=str(info.get("DefaultRuntime") or "runc"),
        data_root=str(info.get("DockerRootDir") or ""),
        has_nvidia_runtime="nvidia" in runtimes,
    )
