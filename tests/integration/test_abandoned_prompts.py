"""A client leaves while a real llama.cpp reads its long prompt: the server is free soon, and nobody waits there."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sparewatt.localnet.demo_model import DEMO_MODEL
from tests.contract.servers import LLAMA, Server, running_server
from tests.integration.asking import ask, chat_body, connection_to, stream_chat
from tests.integration.cascade import is_serving, nodes
from tests.integration.networks import Network, start_network
from tests.processes import end_process, start_process, wait_until

SERVED_S = 120.0
FREE_S = 6.0
"""A ceiling for a crowded machine, on which a batch takes a second. The whole prompt takes half a minute."""
WORDS = 3_000
ITS_TOKENS = 53
"""By this limit the server's slots tell the prompt from those with which an idle node measures it."""
TRIES = 3
PATIENT = {"SPAREWATT_GATEWAY_FIRST_TOKEN_FLOOR_S": "120"}


@dataclass(frozen=True, slots=True)
class LlamaPair:
    network: Network
    servers: Mapping[str, Server]
    """By the name of their node."""

    def reading(self, name: str) -> bool:
        """By the server's own word: whether it is at the long prompt."""
        with urllib.request.urlopen(f"{self.servers[name].url}/slots", timeout=30) as reply:  # noqa: S310 (loopback)
            running = [slot for slot in json.load(reply) if slot["is_processing"]]
        return any(slot["params"]["max_tokens"] == ITS_TOKENS for slot in running)

    def has_given_up(self, name: str) -> bool:
        return not self.reading(name)

    def is_counted_free(self, name: str) -> bool:
        """By the gateway's word: with one slot, a node is busy as long as anything runs there."""
        return bool(nodes(self.network)[name]["state"] == "online")


@contextmanager
def llama_pair(folder: Path) -> Iterator[LlamaPair]:
    kind = replace(LLAMA, flags=(f"--alias={DEMO_MODEL}", "--context=4096", "--slots=1"))
    with ExitStack() as stack:
        network = stack.enter_context(
            start_network(folder / "network", "--engine=deterministic", "--nodes=0", env=PATIENT)
        )
        servers = {name: stack.enter_context(running_server(kind, folder)) for name in ("node-a", "node-b")}
        for name, server in servers.items():
            token = ask(network, "POST", "/v1/join-tokens", {}).json()["token"]
            argv = [sys.executable, "-m", "sparewatt", "node", "join", network.root_url, f"--backend={server.url}"]
            argv += [f"--data={folder / name}", f"--name={name}", "--drain-s=1"]
            env = {**os.environ, "SPAREWATT_NODE_TOKEN": token}
            process = start_process(argv, output=folder / f"{name}.txt", env=env)
            stack.callback(end_process, process, signal.SIGTERM)
        wait_until(lambda: all(is_serving(network, name) for name in servers), "not measured", ceiling_s=SERVED_S)
        yield LlamaPair(network, servers)


def leave_long_prompt(pair: LlamaPair, salt: str) -> str:
    """The name of the node whose server reads it when its client leaves."""
    body = chat_body(pair.network, salt + " word" * WORDS, model=DEMO_MODEL, stream=True, max_tokens=ITS_TOKENS)
    with connection_to(pair.network) as connection:
        headers = {"authorization": f"Bearer {pair.network.api_key}"}
        connection.request("POST", "/v1/chat/completions", body=json.dumps(body).encode(), headers=headers)
        wait_until(lambda: any(map(pair.reading, pair.servers)), "nobody reads it", ceiling_s=30.0)
        return next(filter(pair.reading, pair.servers))


def test_a_prompt_whose_client_left_is_given_up_and_the_next_request_does_not_wait_for_it(tmp_path: Path) -> None:
    with llama_pair(tmp_path) as pair:
        ids = {node["id"]: name for name, node in nodes(pair.network).items()}
        went_elsewhere = []
        for number in range(TRIES):
            left = leave_long_prompt(pair, f"{number}")
            answer = stream_chat(pair.network, "Hi", model=DEMO_MODEL, max_tokens=2)
            assert (answer.status, answer.done) == (200, True), answer
            went_elsewhere.append(ids[answer.headers["x-sparewatt-node"]] != left)
            wait_until(partial(pair.has_given_up, left), "it is still read", ceiling_s=FREE_S)
            wait_until(partial(pair.is_counted_free, left), "the gateway thinks it busy", ceiling_s=FREE_S)
        assert any(went_elsewhere), "each time the next request was sent to the busy server"
