"""Nodes with a real llama.cpp each, and a record of every byte between them: is the joint where it should be?"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from sparewatt.localnet.demo_model import DEMO_MODEL
from tests.contract.servers import LLAMA, running_server
from tests.integration.asking import ask
from tests.integration.cascade import nodes
from tests.integration.networks import Network, start_network
from tests.integration.recording import Exchange, Recorder, recording
from tests.integration.seams import Client, parts_of, streaming, until
from tests.processes import end_process, start_process, wait_until

ANSWER_TOKENS = 60
SERVED_S = 120.0
PATIENT = {"SPAREWATT_GATEWAY_FIRST_TOKEN_FLOOR_S": "120"}
"""One thread of a crowded machine may need that long."""
QUESTIONS = (
    "Tell me about the sea.",
    "How do bees make honey?",
    "What is a steam engine?",
    "Describe a walk in the forest.",
    "Why is bread soft?",
    "What do stars burn?",
    "Explain how a clock works.",
    "Tell a story about a lighthouse.",
)


@dataclass(slots=True)
class LlamaNetwork:
    network: Network
    folder: Path
    recorders: dict[str, Recorder]
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def revive(self) -> None:
        for name, recorder in self.recorders.items():
            if name not in self.nodes or self.nodes[name].poll() is not None:
                self._start_node(name, recorder)
        wait_until(lambda: all(map(self._can_go_on, self.recorders)), "not all can go on", ceiling_s=SERVED_S)

    def _start_node(self, name: str, recorder: Recorder) -> None:
        token = ask(self.network, "POST", "/v1/join-tokens", {}).json()["token"]
        argv = [
            *(sys.executable, "-m", "sparewatt", "node", "join", self.network.root_url, f"--backend={recorder.url}"),
            *(f"--data={self.folder / name}", f"--name={name}", "--drain-s=1"),
        ]
        env = {**os.environ, "SPAREWATT_NODE_TOKEN": token}
        self.nodes[name] = start_process(argv, output=self.folder / f"{name}.txt", env=env)

    def _can_go_on(self, name: str) -> bool:
        node = nodes(self.network).get(name)
        is_there = node is not None and node["state"] in ("online", "suspect") and bool(node["models"])
        model = node["models"][0] if node is not None and is_there else {}
        return bool(model.get("measured")) and "continue_raw" in (model.get("capabilities") or ())

    def busiest(self) -> str:
        jobs = {name: node["in_flight"] for name, node in nodes(self.network).items() if name in self.nodes}
        return max(jobs, key=lambda name: jobs[name])

    def name_of(self, node_id: str) -> str:
        return next(name for name, node in nodes(self.network).items() if node["id"] == node_id)

    def close(self) -> None:
        for process in self.nodes.values():
            end_process(process, signal.SIGTERM)


@contextmanager
def llama_network(folder: Path, *names: str, slots: int) -> Iterator[LlamaNetwork]:
    kind = replace(LLAMA, flags=(f"--alias={DEMO_MODEL}", "--context=1024", f"--slots={slots}"))
    with ExitStack() as stack:
        up = start_network(folder / "network", "--engine=deterministic", "--nodes=0", env=PATIENT)
        network = stack.enter_context(up)
        servers = {name: stack.enter_context(running_server(kind, folder)) for name in names}
        recorders = {name: stack.enter_context(recording(server.url)) for name, server in servers.items()}
        found = LlamaNetwork(network, folder, recorders)
        stack.callback(found.close)
        found.revive()
        yield found


def play(llama: LlamaNetwork, *, streams: int) -> list[Client]:
    """Kill the busiest node when every stream has some text; returns when all are over."""
    more: dict[str, object] = {"ignore_eos": True, "temperature": 0.8, "seed": 3}
    clients = [Client(QUESTIONS[i], ANSWER_TOKENS, model=DEMO_MODEL, more=more) for i in range(streams)]

    async def go() -> None:
        async with streaming(llama.network, clients):
            await until(lambda: all(client.tokens > 3 or client.broke for client in clients))
            victim = await asyncio.to_thread(llama.busiest)
            llama.nodes[victim].kill()
            llama.nodes[victim].wait(30)

    asyncio.run(go())
    return clients


def check(llama: LlamaNetwork, clients: list[Client]) -> int:
    """Byte for byte: what the client had is what the next node was given, what it wrote is what the client got then.

    Tells how many answers were written by more than one node.
    """
    moved = 0
    for client in clients:
        assert (client.broke, client.is_done) == ("", True), _story(llama, client)
        assert client.usage["completion_tokens"] == ANSWER_TOKENS
        parts = parts_of(llama.network, client)
        moved += len(parts) > 1
        for before, after in pairwise(parts):
            at = after["continued_from"]["chars"]
            had, got = client.text[:at], client.text[at:]
            first = _asked_of(llama.recorders[llama.name_of(before["node"])], client)
            template, second = _continued_on(llama.recorders[llama.name_of(after["node"])], client)
            assert _text(first.answered).startswith(had)
            assert json.loads(second.asked)["prompt"] == json.loads(bytes(template.answered))["prompt"] + had
            assert _text(second.answered) == got
    return moved


def _story(llama: LlamaNetwork, client: Client) -> str:
    """For a message: what the network says of it."""
    explained = ask(llama.network, "GET", f"/v1/matches/{client.match_id}").json()
    return f"{client.broke}\n{explained['attempts']}\n{explained['funnel']}\n{nodes(llama.network)}"


def _asked_of(recorder: Recorder, client: Client) -> Exchange:
    return [each for each in recorder.exchanges if each.path == "/v1/chat/completions" and _is_of(each, client)][-1]


def _continued_on(recorder: Recorder, client: Client) -> tuple[Exchange, Exchange]:
    """Where the prompt came from, and what was asked with it."""
    mine = [each for each in recorder.exchanges if _is_of(each, client)]
    template = [each for each in mine if each.path == "/apply-template"][-1]
    return template, [each for each in mine if each.path == "/v1/completions"][-1]


def _is_of(exchange: Exchange, client: Client) -> bool:
    return client.prompt.encode() in exchange.asked


def _text(answered: bytearray) -> str:
    events = [json.loads(line[6:]) for line in bytes(answered).splitlines() if line.startswith(b"data: {")]
    choices: list[dict[str, Any]] = [choice for event in events for choice in event["choices"]]
    return "".join(choice.get("text") or (choice.get("delta") or {}).get("content") or "" for choice in choices)
