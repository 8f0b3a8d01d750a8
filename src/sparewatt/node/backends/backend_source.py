"""Where a node's model server comes from: the owner names it, or it is found on this machine, or started here."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import aiohttp

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.machine.children import ChildExit, ChildSpec, Supervisor
from sparewatt.machine.spawn import free_port
from sparewatt.node.backends.discovery import KNOWN_PORTS, describe_servers, find_local_servers
from sparewatt.node.backends.llama_server import GET_LLAMA, NEEDS_LLAMA, has_llama
from sparewatt.node.settings import NodeSettings

_log = Logger("sparewatt.node")
LOAD_S = 600.0
"""For loading a large model from a slow disk."""


def http_address(url: str) -> SplitResult | None:
    """Its parts; None if it is no HTTP address."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # not a number as its port
        return None
    return parts if valid else None


def check_backend_url(url: str) -> None:
    """Raises StartupError."""
    if http_address(url) is None:
        raise StartupError(
            f"{url!r} is no address of a model server. It looks like http://127.0.0.1:8080; "
            "with --backend auto the node looks for one."
        )


def how_to_serve() -> str:
    """The rest of a sentence that advises to serve a file."""
    return " with --serve MODEL.gguf" + ("" if has_llama() else f" (first: {GET_LLAMA})")


@dataclass(slots=True, kw_only=True)
class OwnServer:
    """A model server that the agent runs itself, so it can stop it."""

    supervisor: Supervisor
    child: ChildSpec
    is_running: bool = False

    async def start(self) -> None:
        """Raises StartupError."""
        if not self.is_running:
            await self.supervisor.start(self.child)
            self.is_running = True

    async def stop(self) -> None:
        self.is_running = False
        await self.supervisor.stop()


@dataclass(frozen=True, slots=True)
class ModelServer:
    url: str
    own: OwnServer | None = None
    """None: it is not the agent's."""


@asynccontextmanager
async def model_server(
    settings: NodeSettings,
    session: aiohttp.ClientSession,
    *,
    clock: Clock,
    rng: Rng,
    notify: Callable[[str], None] = lambda _: None,
    stopped_url: str | None = None,
) -> AsyncIterator[ModelServer]:
    """The model server to use. Raises StartupError with advice if there is none.

    `stopped_url`: where one was that gave way to a lease; it is neither looked for nor started here.
    """
    if settings.serve is not None:
        is_started = stopped_url is None
        async with _own_server(settings, settings.serve, session, clock=clock, rng=rng, is_started=is_started) as own:
            yield own
    elif settings.backend_url is not None or stopped_url is not None:
        yield ModelServer(settings.backend_url or stopped_url or "")
    else:
        found = await find_local_servers(session)
        if not found:
            ports = ", ".join(f"{name} on {port}" for name, port in KNOWN_PORTS.items())
            raise StartupError(
                f"No model server answers on this machine (looked for {ports}). "
                f"Start one, name it with --backend URL, or serve a file{how_to_serve()}."
            )
        others = f"; not used: {describe_servers(found[1:])}" if len(found) > 1 else ""
        notify(f"found {describe_servers(found[:1])}{others}")
        yield ModelServer(found[0].url)


@asynccontextmanager
async def _own_server(
    settings: NodeSettings, file: Path, session: aiohttp.ClientSession, *, clock: Clock, rng: Rng, is_started: bool
) -> AsyncIterator[ModelServer]:
    if not await asyncio.to_thread(file.is_file):
        raise StartupError(f"There is no file {file} to serve.")
    if not has_llama():  # the child process would say so only in its log
        raise StartupError(NEEDS_LLAMA)
    url = f"http://127.0.0.1:{free_port()}"
    child = ChildSpec(
        name="llama.cpp",
        argv=_argv(settings, file, port=int(url.rsplit(":", 1)[1])),
        log_path=settings.data_dir / "llama.log",
        is_ready=lambda: _answers(url, session),
        ready_timeout_s=LOAD_S,
        drain_s=2.0,
    )
    async with Supervisor(clock=clock, rng=rng, on_exit=_report_exit) as supervisor:
        own = OwnServer(supervisor=supervisor, child=child)
        if is_started:
            await own.start()
        yield ModelServer(url, own)


def _argv(settings: NodeSettings, file: Path, *, port: int) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "sparewatt.node.backends.llama_server",
        str(file),
        f"--alias={settings.serve_as or file.stem}",
        f"--slots={settings.serve_slots}",
        f"--context={settings.serve_context}",
        f"--port={port}",
    )


async def _answers(url: str, session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get(f"{url}/health") as reply:
            return reply.status == 200
    except aiohttp.ClientError:
        return False


def _report_exit(ended: ChildExit) -> None:
    _log.warning("model_server_ended", returncode=ended.returncode, restart_in_s=ended.restart_in_s)
