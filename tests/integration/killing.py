"""A gateway and nodes that a test kills with -9 and starts again at once, under clients that keep what they got.

The network's own supervisor holds back longer after every crash, as it should; here the dying is the point.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from sparewatt.machine.spawn import free_port
from tests.integration.asking import ask
from tests.integration.bookkeeping import BookedJob, Inspection, dsn_of, inspect, journal_bytes
from tests.integration.cascade import is_serving
from tests.integration.networks import Network, start_network
from tests.integration.witnesses import Target, Witness, ask_all
from tests.processes import end_process, start_process, tail, wait_until

MODEL = "mortal"
NODES = ("first", "second", "third")
UP_S = (1.5, 4.0)
"""How long a gateway may serve until it is killed: between these, by chance."""
NODE_EVERY = 3
"""After so many kills of the gateway a node is killed as well."""
RESTART_S = 30.0
GATEWAY_ENV = {
    "SPAREWATT_GATEWAY_REQUESTS_PER_MIN": "1000000",
    "SPAREWATT_GATEWAY_ADDRESS_REQUESTS_PER_MIN": "1000000",
    "SPAREWATT_GATEWAY_SIGNUP_CREDIT_USD": "0",
    "SPAREWATT_GATEWAY_LOG_LEVEL": "debug",
}


@dataclass(slots=True)
class Arena:
    """One mortal gateway beside the network's own, and mortal nodes on engines that live."""

    network: Network
    folder: Path
    root_url: str
    engines: dict[str, str]
    gateway: subprocess.Popen[bytes] = field(init=False)
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    gateways_killed: int = 0
    nodes_killed: int = 0

    @property
    def mortal(self) -> Network:
        return replace(self.network, base_url=f"{self.root_url}/v1", model=MODEL)

    @property
    def port_file(self) -> Path:
        return self.folder / "mortal.port"

    def start_gateway(self) -> None:
        self.port_file.unlink(missing_ok=True)
        argv = [
            *(sys.executable, "-m", "sparewatt", "gateway", "run", f"--port={self.root_url.rpartition(':')[2]}"),
            *(f"--database-url={dsn_of(self.network)}", f"--port-file={self.port_file}"),
            f"--data={self.network.data / 'gateway'}",
        ]
        self.gateway = start_process(argv, output=self.folder / "mortal.txt", env={**os.environ, **GATEWAY_ENV})

    def start_node(self, name: str, *, token: str | None = None) -> None:
        argv = [
            *(sys.executable, "-m", "tests.integration.eager_node", "node", "join", self.root_url),
            *(f"--backend={self.engines[name]}", f"--data={self.folder / name}", f"--name={name}", "--drain-s=1"),
        ]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        env |= {"SPAREWATT_NODE_TOKEN": token} if token else {}
        self.nodes[name] = start_process(argv, output=self.folder / f"{name}.txt", env=env)

    def kill_gateway(self) -> None:
        assert self.gateway.poll() is None, f"the gateway ended by itself:\n{tail(self.folder / 'mortal.txt')}"
        self.gateway.kill()
        self.gateway.wait(RESTART_S)
        self.gateways_killed += 1
        self.start_gateway()

    def kill_node(self, name: str) -> None:
        self.nodes[name].kill()
        self.nodes[name].wait(RESTART_S)
        self.nodes_killed += 1
        self.start_node(name)

    def close(self) -> None:
        for process in (*self.nodes.values(), self.gateway):
            end_process(process, signal.SIGTERM)


@contextmanager
def arena(folder: Path) -> Iterator[Arena]:
    """Everything up and serving; what is left of it afterwards is ended, the network last."""
    with ExitStack() as stack:
        network = stack.enter_context(start_network(folder / "network", "--engine=deterministic", "--nodes=0"))
        engines = {name: stack.enter_context(_engine(folder, name)) for name in NODES}
        found = Arena(network, folder, f"http://127.0.0.1:{free_port()}", engines)
        found.start_gateway()
        stack.callback(found.close)
        wait_until(found.port_file.exists, "the mortal gateway does not listen")
        for name in NODES:
            token = ask(found.mortal, "POST", "/v1/join-tokens", {}).json()["token"]
            found.start_node(name, token=token)
        for name in NODES:
            wait_until(partial(is_serving, found.mortal, name), f"{name} does not serve", ceiling_s=60)
        yield found


@contextmanager
def _engine(folder: Path, name: str) -> Iterator[str]:
    port_file = folder / f"{name}-engine.port"
    argv = [
        *(sys.executable, "-m", "sparewatt.testing", f"--port-file={port_file}", f"--model={MODEL}"),
        *("--slots=16", "--prefill-tps=4000", "--decode-tps=80"),
    ]
    process = start_process(argv, output=folder / f"{name}-engine.txt")
    try:
        wait_until(port_file.exists, "the engine does not listen")
        yield f"http://127.0.0.1:{port_file.read_text()}"
    finally:
        end_process(process, signal.SIGTERM)


# killing


async def kill_again_and_again(arena: Arena, *, kills: int | None, seconds: float, seed: int) -> None:
    """Kill the gateway a while after each time that it listens; and now and then a node."""
    chance = random.Random(f"kills {seed}")  # noqa: S311 (repeatable)
    ends_s = time.monotonic() + seconds
    while arena.gateways_killed != kills and time.monotonic() < ends_s:
        await _until(arena.port_file.exists)
        await asyncio.sleep(chance.uniform(*UP_S))
        arena.kill_gateway()
        if arena.gateways_killed % NODE_EVERY == NODE_EVERY - 1:
            arena.kill_node(chance.choice(NODES))
    await _until(arena.port_file.exists)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(RESTART_S):
        while not holds():  # noqa: ASYNC110 (a file of another process)
            await asyncio.sleep(0.05)


async def ask_and_kill(arena: Arena, *, rate: float, seconds: float, kills: int | None, seed: int) -> list[Witness]:
    target = target_of(arena)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask_all(target, rate=rate, seconds=seconds))
        tasks.create_task(kill_again_and_again(arena, kills=kills, seconds=seconds, seed=seed))
    return asking.result()


def target_of(arena: Arena) -> Target:
    keys = [ask(arena.mortal, "POST", "/v1/keys", {"name": name}).json()["key"] for name in ("stayers", "leavers")]
    return Target(arena.root_url, MODEL, *keys)


# judging


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in the books after everything was stopped cleanly. Lists are faults, each by its job."""

    witnesses: list[Witness]
    found: Inspection
    stayers_key_id: str
    journals: dict[str, int]

    @property
    def accepted(self) -> list[Witness]:
        """Those who were told the id of their job."""
        return [witness for witness in self.witnesses if witness.match_id is not None]

    def lost(self) -> list[str]:
        """Jobs that a client knows of and the books do not."""
        known = self.found.by_id()
        return [witness.match_id for witness in self.accepted if witness.match_id and witness.match_id not in known]

    def overcharged(self) -> list[tuple[str, int, int]]:
        """Jobs that cost more tokens than their client has; who left cannot know what was under way to them."""
        return [(job.id, job.completion_tokens, seen) for job, seen in self._stayers() if job.completion_tokens > seen]

    def given_away(self) -> int:
        """Tokens that clients have and did not pay: what the last moment before a kill costs the network."""
        return sum(max(0, seen - job.completion_tokens) for job, seen in self._stayers())

    def delivered(self) -> int:
        return sum(seen for _, seen in self._stayers())

    def _stayers(self) -> list[tuple[BookedJob, int]]:
        seen = {witness.match_id: witness.tokens for witness in self.accepted}
        return [(job, seen.get(job.id, 0)) for job in self.found.jobs if job.key_id == self.stayers_key_id]

    def check(self) -> None:
        audit = self.found.audit
        assert audit.is_clean, audit
        assert audit.overdrawn == 0
        assert self.lost() == []
        assert self.found.charged_twice() == []
        assert self.overcharged() == []
        assert self.found.slices == {}
        assert set(self.journals.values()) <= {0}


def judge(arena: Arena, witnesses: list[Witness]) -> Verdict:
    """Stop the mortal gateway as one should, then look."""
    keys = {key["name"]: key["id"] for key in ask(arena.mortal, "GET", "/v1/keys").json()["data"]}
    status = end_process(arena.gateway, signal.SIGTERM, ceiling_s=60)
    assert status == 0, f"the gateway stopped with status {status}:\n{tail(arena.folder / 'mortal.txt')}"
    return Verdict(witnesses, inspect(arena.network), keys["stayers"], journal_bytes(arena.network.data))
