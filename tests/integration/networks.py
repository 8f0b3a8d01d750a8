"""A whole network as a real process for a test: started, waited for, ended by its own pid, and nothing of it left.

with start_network(tmp_path, "--engine", "deterministic", "--nodes", "2") as network:
    client = openai.OpenAI(base_url=network.base_url, api_key=network.api_key)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparewatt.machine.spawn import free_port
from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.databases import migrated_database
from tests.processes import (
    Identity,
    alive,
    commands_of,
    descendants_of,
    end_process,
    kill_all,
    start_process,
    tail,
    wait_until,
)

__all__ = ["Identity", "Network", "alive", "descendants_of", "start_network", "tail", "wait_until"]

READY_S = 60.0
STOP_S = 60.0
GONE_S = 20.0
"""How long what belonged to an ended network may take to be gone."""

_STEERING = ("SPAREWATT_", "OPENAI_", "DATABASE_URL", "CHAIN_URL")
"""How the names of variables begin that would make a network another one."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network that answers."""

    base_url: str
    """With `/v1`, as a client wants it."""

    api_key: str
    model: str
    ready: Mapping[str, Any]
    """All of ready.json."""

    data: Path
    process: subprocess.Popen[bytes]
    output: Path
    """What it printed so far."""
    database_url: str | None = None
    """Where its books are, unless it has a Postgres of its own."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def root_url(self) -> str:
        return self.base_url.removesuffix("/v1")

    @property
    def log_dir(self) -> Path:
        return self.data / "logs"

    def descendants(self) -> set[Identity]:
        """Every process below it right now: gateway, nodes, engines, database."""
        return descendants_of(self.pid)


@contextmanager
def start_network(
    folder: Path,
    *flags: str,
    port: int | None = None,
    chain: bool = False,
    env: Mapping[str, str] | None = None,
    ready_s: float = READY_S,
    server: EmbeddedPostgres | None = None,
) -> Iterator[Network]:
    """Run `sparewatt up FLAGS` with all it writes under `folder`; a second start on one `folder` finds the same data.

    Only with `chain` does it have one: most tests are not about it, and it costs a second of two cores.
    With `server` its books are in a database there, else in a Postgres of its own, which costs another second.
    A test may end the process itself, with whatever signal; what it left running is looked for all the same.
    Call it from the main thread: the network ends when the thread that started it does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data, output = folder / "data", folder / "up.txt"
    argv = [sys.executable, "-m", "sparewatt", "up", f"--port={port or free_port()}", f"--data={data}", *flags]
    argv += [] if chain else ["--no-chain"]
    database_url = None if server is None else asyncio.run(migrated_database(server))
    argv += [] if database_url is None else [f"--database-url={database_url}"]
    given = env or {}
    if "DOCKER_HOST" not in given:
        # The auction alone: trying containers takes each of its nodes seconds.
        given = {"SPAREWATT_NODE_LEASES_UNTRIED": "true", "SPAREWATT_UP_CONTAINERS": "false", **given}
    process = start_process(argv, output=output, env=environment_of(folder, given))
    below: set[Identity] = set()
    try:
        ready = _wait_until_ready(process, data, ready_s=ready_s)
        below = descendants_of(process.pid)
        yield Network(ready["base_url"], ready["api_key"], ready["model"], ready, data, process, output, database_url)
    except BaseException as error:
        error.add_note(f"The network printed:\n{tail(output)}\n{_log_tails(data / 'logs')}")
        raise
    finally:
        _end(process, below)


def environment_of(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Ours without what would steer the network, and with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_STEERING)}
    # What was fetched once is not fetched again.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    homes = {"HOME": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return {**kept, **homes, "XDG_CACHE_HOME": cache, **given}


def _wait_until_ready(process: subprocess.Popen[bytes], data: Path, *, ready_s: float) -> dict[str, Any]:
    ready_file = data / "ready.json"
    ready: dict[str, Any] = {}

    def is_ready() -> bool:
        assert process.poll() is None, f"it ended with status {process.returncode} before it was ready"
        with contextlib.suppress(OSError, ValueError):
            ready.update(json.loads(ready_file.read_text()))
        return ready.get("pid") == process.pid  # one that was killed before may have left its file

    wait_until(is_ready, "the network is not ready", ceiling_s=ready_s)
    return ready


def _end(process: subprocess.Popen[bytes], below: set[Identity]) -> None:
    """Ask with SIGINT. What does not go is killed, each by its pid, and fails the test."""
    below |= descendants_of(process.pid)
    was_running = process.poll() is None
    status = end_process(process, signal.SIGINT, ceiling_s=STOP_S)
    try:
        assert status is not None, f"the network did not stop within {STOP_S:.0f} s of SIGINT"
        assert not was_running or status == 0, f"the network stopped with status {status}"
        _wait_until_gone(below)
    finally:
        kill_all(below)


def _wait_until_gone(below: set[Identity]) -> None:
    try:
        wait_until(lambda: not alive(below), "something of the network is left", ceiling_s=GONE_S)
    except AssertionError as error:
        error.add_note(str(commands_of(below)))
        raise


def _log_tails(folder: Path) -> str:
    return "\n".join(f"--- {path.name}\n{tail(path)}" for path in sorted(folder.glob("*.log")))
