"""Real processes that call one model by different ids: they serve it together, and an operator can add a third."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.machine.spawn import free_port
from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import ask
from tests.integration.cascade import is_serving
from tests.integration.networks import Network, start_network
from tests.integration.test_nodes import new_token, running
from tests.processes import tail, wait_until

OLLAMA, FILE, OURS = "llama3.1:8b-instruct-q4_K_M", "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "our-llama"
EIGHT_BILLION = "--n-params=8030000000"
NAME = "llama-3.1-8b"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("network")
    with start_network(folder, "--engine", "deterministic", "--nodes", "1", server=server) as network:
        yield network


@contextlib.contextmanager
def a_node(network: Network, folder: Path, name: str, model: str, *flags: str) -> Iterator[Path]:
    """Yields where it writes what it tells its owner."""
    folder.mkdir()
    port, said = free_port(), folder / "node.txt"
    join = ("sparewatt", "node", "join", network.root_url, f"--token={new_token(network)}", f"--name={name}")
    with (
        running(folder / "engine.txt", "sparewatt.testing", f"--port={port}", f"--model={model}", *flags),
        running(said, *join, f"--backend=http://127.0.0.1:{port}", f"--data={folder}"),
    ):
        wait_until(lambda: is_serving(network, name), f"{name} is not serving; it said: {tail(said)}")
        yield said


def chat(network: Network, model: str, number: int = 0, **more: object) -> tuple[str, dict[str, object]]:
    body = {"model": model, "messages": [{"role": "user", "content": f"hello {number}"}], "max_tokens": 5, **more}
    reply = ask(network, "POST", "/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    return reply.headers["x-sparewatt-served-as"], reply.json()


def test_two_owners_servers_are_one_model_and_an_alias_adds_a_third(network: Network, tmp_path: Path) -> None:
    assert ask(network, "POST", "/v1/chat/completions", {"model": NAME, "messages": [{"role": "user"}]}).status == 404
    with (
        a_node(network, tmp_path / "a", "a", OLLAMA, EIGHT_BILLION) as said,
        a_node(network, tmp_path / "b", "b", FILE, EIGHT_BILLION),
        a_node(network, tmp_path / "c", "c", OURS, EIGHT_BILLION),
    ):
        wait_until(lambda: f"serves {NAME} ({OLLAMA})" in said.read_text(), "the owner reads the model's name")
        served = {chat(network, NAME, number)[0] for number in range(20)}
        assert served <= {OLLAMA, FILE}
        for asked in (NAME, OLLAMA, FILE, "meta-llama/Llama-3.1-8B-Instruct"):
            assert chat(network, asked)[1]["model"] == asked
        listed = ask(network, "GET", f"/v1/models/{OLLAMA}").json()
        assert (listed["id"], listed["nodes_online"]) == (NAME, 2)
        made = ask(network, "POST", "/v1/model-aliases", {"name": OURS, "target": NAME})
        assert made.status == 201
        assert ask(network, "GET", f"/v1/models/{NAME}").json()["nodes_online"] == 3
        only = {"only": ["c"]}
        assert chat(network, OURS, provider=only)[0] == OURS
        fallen = ask(
            network,
            "POST",
            "/v1/chat/completions",
            {"models": ["nobody-has-it", OURS], "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
        )
        assert (fallen.status, fallen.json()["model"], fallen.headers["x-sparewatt-model"]) == (200, OURS, NAME)


def test_a_small_model_under_a_great_name_is_not_served_under_it(network: Network, tmp_path: Path) -> None:
    with a_node(network, tmp_path / "liar", "liar", "llama3.1:70b") as said:
        wait_until(lambda: "is called unverified/llama3.1:70b" in said.read_text(), "the owner reads why")
        reply = ask(network, "POST", "/v1/chat/completions", {"model": "llama3.1:70b", "messages": [{"role": "user"}]})
        assert (reply.status, reply.json()["error"]["code"]) == (404, "model_not_found")
