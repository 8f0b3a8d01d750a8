"""Where a node's model server comes from: the owner names it, or it is found on this machine, or started here."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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


@asynccontextmanager
async def model_server(
    settings: NodeSettings,
    session: aiohttp.ClientSession,
    *,
    clock: Clock,
    rng: Rng,
    notify: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[str]:
    """The address of the model server to use. Raises StartupError with advice if there is none."""
    if settings.serve is not None:
        async with _started_server(settings, settings.serve, session, clock=clock, rng=rng) as url:
            yield url
    elif settings.backend_url is not None:
        yield settings.backend_url
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
        yield found[0].url


@asynccontextmanager
async def _started_server(
    settings: NodeSettings, file: Path, session: aiohttp.ClientSession, *, clock: Clock, rng: Rng
) -> AsyncIterator[str]:
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
        await supervisor.start(child)
        yield url


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
