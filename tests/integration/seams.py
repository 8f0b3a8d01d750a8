"""Answers that lose their node in the middle: a network whose nodes a test kills, stops and starts again.

The text of the deterministic engine is known: a stream is right to the byte, or broken. What nodes wrote and what their
clients have is set against the books in the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.testing import expected_text, render_chat
from tests.integration.asking import ask
from tests.integration.bookkeeping import inspect, rows
from tests.integration.cascade import nodes
from tests.integration.networks import Network, start_network
from tests.processes import end_process, start_process, tail, wait_until

MODEL = "mortal"
NODES = ("first", "second", "third", "fourth")
STREAM_S = 180.0
"""After this long a stream counts as stuck."""

Blow = Literal["kill", "kill two", "stop", "kill while clients leave"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long answers are, and how fast they are written: together, how long there is time to strike."""

    answer_tokens: int = 40
    decode_tps: float = 20


QUICK = Pace()


@dataclass(slots=True)
class Client:
    """One streamed chat and all that came of it."""

    prompt: str
    answer_tokens: int
    model: str = MODEL
    more: dict[str, object] = field(default_factory=dict)
    leaves_after: int | None = None
    status: int = 0
    chunks: list[dict[str, Any]] = field(default_factory=list)
    comments: int = 0
    is_done: bool = False
    has_left: bool = False
    broke: str = ""
    match_id: str = ""
    usage: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(choice["delta"].get("content") or "" for choice in self._choices)

    @property
    def tokens(self) -> int:
        return sum(bool(choice["delta"].get("content")) for choice in self._choices)

    @property
    def _choices(self) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices") or ()]

    def fault(self) -> str | None:
        """What is wrong with it; None if nobody could tell that a node was lost."""
        wanted = expected(self.prompt, self.answer_tokens)
        finishes = [choice["finish_reason"] for choice in self._choices if choice.get("finish_reason")]
        roles = sum("role" in choice["delta"] for choice in self._choices)
        faults = {
            self.broke: bool(self.broke),
            f"status {self.status}": self.status != 200,
            "no [DONE]": not self.is_done,
            "another text": self.text != wanted,
            f"finished as {finishes}": finishes != ["length"],
            f"{roles} roles": roles != 1,
            "several ids": len({(chunk.get("id"), chunk.get("created")) for chunk in self.chunks}) != 1,
            f"counted {self.usage}": self.usage.get("completion_tokens") != self.answer_tokens,
        }
        if self.has_left:
            return None if wanted.startswith(self.text) else "another text"
        return next((what for what, is_so in faults.items() if is_so), None)


def expected(prompt: str, tokens: int) -> str:
    rendered = render_chat([{"role": "user", "content": prompt}])
    return expected_text(rendered, max_tokens=tokens, answer_length=2 * tokens)


@dataclass(slots=True)
class Arena:
    """A network, and nodes that its supervisor does not start again, each before an engine that lives."""

    network: Network
    folder: Path
    engines: dict[str, str]
    pace: Pace
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_node(self, name: str) -> None:
        token = ask(self.network, "POST", "/v1/join-tokens", {}).json()["token"]
        argv = [
            *(sys.executable, "-m", "tests.integration.eager_node", "node", "join", self.network.root_url),
            *(f"--backend={self.engines[name]}", f"--data={self.folder / name}", f"--name={name}", "--drain-s=1"),
        ]
        path = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "SPAREWATT_NODE_TOKEN": token}
        self.nodes[name] = start_process(argv, output=self.folder / f"{name}.txt", env=env)

    def revive(self) -> None:
        """Everybody is up and serving."""
        for name in NODES:
            process = self.nodes.get(name)
            if process is None or process.poll() is not None:
                self.start_node(name)
            else:
                process.send_signal(signal.SIGCONT)
        wait_until(lambda: all(map(self.can_go_on, NODES)), "not all can go on with an answer", ceiling_s=90)

    def can_go_on(self, name: str) -> bool:
        """Only if others can does killing one of them show anything. One that was lost a moment ago is suspect."""
        node = nodes(self.network).get(name)
        if node is None or node["state"] not in ("online", "suspect") or not node["models"]:
            return False
        model = node["models"][0]
        return model["measured"] is not None and "continue_raw" in (model["capabilities"] or ())

    def strike(self, name: str, sig: signal.Signals) -> None:
        self.nodes[name].send_signal(sig)
        if sig is signal.SIGKILL:
            self.nodes[name].wait(30)

    def busiest(self) -> list[str]:
        jobs = {name: node["in_flight"] for name, node in nodes(self.network).items() if name in NODES}
        return sorted(jobs, key=lambda name: -jobs[name])

    def close(self) -> None:
        for process in self.nodes.values():
            process.send_signal(signal.SIGCONT)
            end_process(process, signal.SIGTERM)


@contextmanager
def arena(folder: Path, *, pace: Pace = QUICK, server: EmbeddedPostgres | None = None) -> Iterator[Arena]:
    env = {
        "SPAREWATT_GATEWAY_REQUESTS_PER_MIN": "1000000",
        "SPAREWATT_GATEWAY_ADDRESS_REQUESTS_PER_MIN": "1000000",
    }
    with ExitStack() as stack:
        up = start_network(folder / "network", "--engine=deterministic", "--nodes=0", env=env, server=server)
        network = stack.enter_context(up)
        engines = {name: stack.enter_context(_engine(folder, name, pace)) for name in NODES}
        found = Arena(network, folder, engines, pace)
        stack.callback(found.close)
        found.revive()
        yield found


@contextmanager
def _engine(folder: Path, name: str, pace: Pace) -> Iterator[str]:
    port_file = folder / f"{name}-engine.port"
    argv = [
        *(sys.executable, "-m", "sparewatt.testing", f"--port-file={port_file}", f"--model={MODEL}"),
        *("--slots=256", "--prefill-tps=20000", f"--decode-tps={pace.decode_tps}"),
        f"--answer-tokens={2 * pace.answer_tokens}",
    ]
    process = start_process(argv, output=folder / f"{name}-engine.txt")
    try:
        wait_until(port_file.exists, f"the engine does not listen: {tail(folder / f'{name}-engine.txt')}")
        yield f"http://127.0.0.1:{port_file.read_text()}"
    finally:
        end_process(process, signal.SIGTERM)


# one round


@dataclass(slots=True)
class Round:
    blow: Blow
    clients: list[Client]
    struck: list[str] = field(default_factory=list)
    moved: int = 0
    """Answers that more than one node wrote."""
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)

    def judge(self) -> None:
        self.faults = Counter(fault for client in self.clients if (fault := client.fault()) is not None)

    def forget_texts(self) -> None:
        """Of hundreds of rounds, all texts would fill the memory."""
        for client in self.clients:
            client.chunks.clear()


def play(arena: Arena, blow: Blow, *, streams: int, number: int = 0) -> Round:
    """Open streams, strike when every one of them has a token, and see them end."""
    clients = [
        Client(
            f"Round {number}, question {i}",
            arena.pace.answer_tokens,
            leaves_after=3 + i % 9 if "leave" in blow and i % 2 else None,
        )
        for i in range(streams)
    ]
    done = Round(blow, clients)
    began_s = time.monotonic()
    asyncio.run(_play(arena, done))
    done.seconds = time.monotonic() - began_s
    done.judge()
    done.moved = sum(len(parts_of(arena.network, client)) > 1 for client in clients if client.match_id)
    return done


@asynccontextmanager
async def streaming(network: Network, clients: Sequence[Client]) -> AsyncIterator[None]:
    """All of them ask at once, and have all that they will get when it is left."""
    timeout = aiohttp.ClientTimeout(total=STREAM_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(_stream(session, network, client))
        yield


async def _play(arena: Arena, done: Round) -> None:
    async with streaming(arena.network, done.clients):
        await until(lambda: all(client.tokens or client.broke for client in done.clients))
        victims = await asyncio.to_thread(arena.busiest)
        sig = signal.SIGSTOP if done.blow == "stop" else signal.SIGKILL
        done.struck = victims[: 2 if done.blow == "kill two" else 1]
        for victim in done.struck:
            had = [client.tokens for client in done.clients]
            arena.strike(victim, sig)
            stays = [(client, n) for client, n in zip(done.clients, had, strict=True) if client.leaves_after is None]
            await until(lambda stays=stays: all(c.tokens > n + 2 or c.is_done or c.broke for c, n in stays))  # type: ignore[misc]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(STREAM_S):
        while not holds():  # noqa: ASYNC110 (what others have read by now)
            await asyncio.sleep(0.05)


async def _stream(session: aiohttp.ClientSession, network: Network, client: Client) -> None:
    try:
        await _read(session, network, client)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        client.broke = client.broke or str(error) or type(error).__name__


async def _read(session: aiohttp.ClientSession, network: Network, client: Client) -> None:
    body = {
        "model": client.model,
        "messages": [{"role": "user", "content": client.prompt}],
        "max_tokens": client.answer_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **client.more,
    }
    headers = {"authorization": f"Bearer {network.api_key}"}
    async with session.post(f"{network.base_url}/chat/completions", json=body, headers=headers) as reply:
        client.status, client.match_id = reply.status, reply.headers.get("x-sparewatt-match-id", "")
        async for line in reply.content:
            _read_line(client, line.strip())
            if client.leaves_after is not None and client.tokens >= client.leaves_after:
                client.has_left = True
                return


def _read_line(client: Client, line: bytes) -> None:
    if line.startswith(b":"):
        client.comments += 1
    elif line == b"data: [DONE]":
        client.is_done = True
    elif line.startswith(b"data: "):
        assert not client.is_done, "something came after [DONE]"
        chunk = json.loads(line[6:])
        client.chunks.append(chunk)
        client.usage = chunk.get("usage") or client.usage
        if "error" in chunk:
            client.broke = chunk["error"]["message"]


# judging


def parts_of(network: Network, client: Client) -> list[dict[str, Any]]:
    """The attempts that wrote something, as the network explains them."""
    explained = ask(network, "GET", f"/v1/matches/{client.match_id}").json()
    return [attempt for attempt in explained["attempts"] if attempt["tokens"]]


def check_seams(arena: Arena, done: Round) -> None:
    """Where a node went on is where the one before had stopped."""
    for client in done.clients:
        parts = parts_of(arena.network, client) if client.match_id else []
        tokens = chars = 0
        for part in parts[:1] if len(parts) < 2 else parts:
            at = part["continued_from"] or {"tokens": 0, "chars": 0}
            assert (at["tokens"], at["chars"]) == (tokens, chars)
            tokens, chars = tokens + part["tokens"], chars + part["chars"]
        if len(parts) > 1 and not client.has_left:
            assert (tokens, chars) == (client.answer_tokens, len(client.text))


def check_books(arena: Arena, rounds: Sequence[Round]) -> dict[str, int]:
    """Nobody paid twice, every part is paid to whom wrote it, and no prompt counts more than once."""
    clients = [client for done in rounds for client in done.clients if client.match_id]
    wait_until(lambda: len(inspect(arena.network).jobs) >= len(clients), "not all jobs are in the books")
    found = inspect(arena.network)
    assert found.audit.is_clean, found.audit
    assert found.charged_twice() == []
    jobs = found.by_id()
    prompts = {job["id"]: job["prompt_tokens"] for job in rows(arena.network, "SELECT id, prompt_tokens FROM jobs")}
    for client in clients:
        job = jobs[client.match_id]
        if not client.has_left:
            assert job.state == "done"
            assert job.completion_tokens == client.answer_tokens
            assert prompts[job.id] == client.usage["prompt_tokens"]
    disputed = rows(arena.network, "SELECT count(*) AS n FROM receipts WHERE disputed")[0]["n"]
    assert disputed == 0
    return {"jobs": len(clients), "nano": sum(jobs[client.match_id].cost_nano for client in clients)}
