"""Four model servers that differ fifty-fold, as real processes, and a network of them.

An engine works on `slots` answers at once, each in `service_s`, and the rest wait in line, so its capacity is
slots / service_s. Of the service, five sixths go into reading the prompt and a sixth into writing the answer:

    prefill_tps = PROMPT_TOKENS / (5/6 * service_s)      decode_tps = (ANSWER_TOKENS - 1) / (1/6 * service_s)

(the first token of an answer comes with the end of reading, so 8 tokens are 7 steps apart).
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.testing import count_tokens, render_chat
from tests.integration.asking import ask
from tests.integration.cascade import is_serving
from tests.integration.networks import Network, start_network
from tests.integration.streaming import Endpoint, prompt_of
from tests.processes import end_process, start_process, wait_until

MODEL = "unequal"
PROMPT_WORDS = 60
ANSWER_TOKENS = 8
READING_SHARE = 5 / 6
JOIN_S = 120.0
"""How long joining and measuring may take: a slow engine reads its longest prompt for several seconds."""


def prompts(count: int) -> list[str]:
    return [prompt_of(number, words=PROMPT_WORDS) for number in range(count)]


PROMPT_TOKENS = count_tokens(render_chat([{"role": "user", "content": prompts(1)[0]}]))
"""As the engine counts, its chat markers included; the same for every prompt."""


@dataclass(frozen=True, slots=True)
class UnequalNode:
    name: str
    slots: int
    capacity_rps: float
    answer_tokens: int = ANSWER_TOKENS
    reading_share: float = READING_SHARE

    @property
    def service_s(self) -> float:
        return self.slots / self.capacity_rps

    @property
    def reading_s(self) -> float:
        return self.reading_share * self.service_s

    @property
    def prefill_tps(self) -> float:
        return PROMPT_TOKENS / self.reading_s

    @property
    def decode_tps(self) -> float:
        return (self.answer_tokens - 1) / (self.service_s - self.reading_s)


FAST, MID = UnequalNode("fast", 4, 98.0), UnequalNode("mid", 2, 24.0)
SLOW_1, SLOW_2 = UnequalNode("slow-1", 1, 2.0), UnequalNode("slow-2", 1, 2.0)
NODES = (FAST, MID, SLOW_1, SLOW_2)


@contextmanager
def running_engines(folder: Path, nodes: Sequence[UnequalNode] = NODES) -> Iterator[dict[str, str]]:
    """Each node's model server; gives their addresses by name."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(_engine(folder, node)) for node in nodes]
        wait_until(lambda: all(file.exists() for file in files), "not all engines listen")
        yield {node.name: f"http://127.0.0.1:{file.read_text()}" for node, file in zip(nodes, files, strict=True)}


@contextmanager
def _engine(folder: Path, node: UnequalNode) -> Iterator[Path]:
    port_file = folder / f"{node.name}.port"
    argv = [
        *(sys.executable, "-m", "sparewatt.testing"),
        f"--port-file={port_file}",
        f"--model={MODEL}",
        f"--slots={node.slots}",
        f"--prefill-tps={node.prefill_tps}",
        f"--decode-tps={node.decode_tps}",
    ]
    process = start_process(argv, output=folder / f"{node.name}-engine.txt")
    try:
        yield port_file
    finally:
        end_process(process, signal.SIGTERM)
        port_file.unlink(missing_ok=True)


@contextmanager
def unequal_network(
    folder: Path, engines: Mapping[str, str], *node_flags: str, server: EmbeddedPostgres | None = None
) -> Iterator[Network]:
    """A gateway with its database, and a node agent in front of each engine, all measured and serving.

    They join one after the other: on machines of their own they would not disturb each other's measuring either.
    """
    with (
        start_network(folder, "--engine=deterministic", "--nodes=0", server=server) as network,
        contextlib.ExitStack() as stack,
    ):
        for name, url in engines.items():
            stack.enter_context(_agent(network, folder, name, url, node_flags))
            wait_until(partial(is_serving, network, name), f"{name} does not serve", ceiling_s=JOIN_S)
        yield network


@contextmanager
def _agent(network: Network, folder: Path, name: str, backend_url: str, flags: Sequence[str]) -> Iterator[None]:
    token = ask(network, "POST", "/v1/join-tokens", {}).json()["token"]
    argv = [
        *(sys.executable, "-m", "sparewatt", "node", "join", network.root_url),
        f"--token={token}",
        f"--backend={backend_url}",
        f"--data={folder / name}",
        f"--name={name}",
        "--drain-s=1",
        *flags,
    ]
    process = start_process(argv, output=folder / f"{name}.txt")
    try:
        yield
    finally:
        end_process(process, signal.SIGTERM)


def endpoint_of(network: Network) -> Endpoint:
    return Endpoint(network.root_url, MODEL, network.api_key)


def jobs_started(engines: Mapping[str, str]) -> dict[str, int]:
    """How many answers each engine has begun, measuring included."""
    return {name: _stats(url)["started"] for name, url in engines.items()}


def _stats(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/engine/stats", timeout=10) as reply:  # noqa: S310 (our own loopback address)
        stats: dict[str, int] = json.load(reply)
        return stats
