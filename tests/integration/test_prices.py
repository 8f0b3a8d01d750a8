"""Prices of strangers on a real network: absurd ones harm nobody, and a model is usable from its first second."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparewatt.machine.spawn import free_port
from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import Reply, ask
from tests.integration.cascade import is_serving, nodes
from tests.integration.networks import Network, start_network
from tests.integration.people import Person, sign_up
from tests.processes import end_process, start_process, tail, wait_until

CHAT = "/v1/chat/completions"
ABSURD_USD = "1000000"
ABSURD = [f"absurd-{number}" for number in range(5)]
NEW_MODEL = "just-come"
LONE_MODEL = "lone-and-absurd"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("prices")
    with start_network(folder, "--engine=deterministic", "--nodes=3", server=server) as found:
        yield found


@pytest.fixture(scope="module")
def stranger(network: Network) -> Person:
    """An account that lends nodes."""
    return sign_up(network, "stranger@example.org")


@contextmanager
def engine(folder: Path, model: str) -> Iterator[str]:
    port = free_port()
    argv = [sys.executable, "-m", "sparewatt.testing", f"--port={port}", f"--model={model}"]
    process = start_process(argv, output=folder / f"engine-{model}.txt")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGKILL)


@contextmanager
def joined(network: Network, owner: Person, folder: Path, name: str, backend: str, *prices: str) -> Iterator[Path]:
    """A node of this owner; what it says goes to the file."""
    token = ask(network, "POST", "/v1/join-tokens", {}, key=owner.key).json()["token"]
    argv = [sys.executable, "-m", "sparewatt", "node", "join", network.root_url, f"--token={token}", f"--name={name}"]
    output = folder / f"{name}.txt"
    process = start_process([*argv, f"--backend={backend}", f"--data={folder / name}", *prices], output=output)
    try:
        yield output
    finally:
        end_process(process, signal.SIGKILL)


def asking(usd: str) -> tuple[str, str]:
    return f"--prompt-usd-per-mtok={usd}", f"--completion-usd-per-mtok={usd}"


def chat(network: Network, model: str, **more: object) -> Reply:
    body = {"model": model, "messages": [{"role": "user", "content": "what does it cost"}], "max_tokens": 5, **more}
    return ask(network, "POST", CHAT, body)


def node_of(network: Network, reply: Reply) -> str:
    assert reply.status == 200, reply.body
    return next(name for name, node in nodes(network).items() if node["id"] == reply.headers["x-sparewatt-node"])


def test_five_absurd_prices_beside_three_honest_ones_change_nothing(
    network: Network, stranger: Person, tmp_path: Path
) -> None:
    with ExitStack() as open_ones:
        backend = open_ones.enter_context(engine(tmp_path, network.model))
        said = [
            open_ones.enter_context(joined(network, stranger, tmp_path, name, backend, *asking(ABSURD_USD)))
            for name in ABSURD
        ]
        wait_until(
            lambda: all(is_serving(network, name) for name in ABSURD), f"not serving: {[tail(each) for each in said]}"
        )
        for _ in range(20):
            assert node_of(network, chat(network, network.model)).startswith("node-")
        told = nodes(network)
        for name in ABSURD:
            assert "is above" in told[name]["models"][0]["price"]["notice"]
        assert told["node-1"]["models"][0]["price"]["notice"] is None
        why = ask(network, "GET", "/v1/nodes/absurd-0/why", key=stranger.key).json()
        assert any("the most that a request without max_price pays" in sentence for sentence in why["sentences"])


def test_the_first_request_of_a_model_that_has_just_come_is_answered(
    network: Network, stranger: Person, tmp_path: Path
) -> None:
    """Sent as soon as the gateway knows the model: it may have to wait until the node is measured."""

    def is_known() -> bool:
        found: list[dict[str, Any]] = nodes(network).get("newcomer", {"models": []})["models"]
        return any(model["id"] == NEW_MODEL for model in found)

    with engine(tmp_path, NEW_MODEL) as backend, joined(network, stranger, tmp_path, "newcomer", backend) as said:
        wait_until(is_known, f"not joined; it said: {tail(said)}")
        assert node_of(network, chat(network, NEW_MODEL)) == "newcomer"


def test_a_lone_newcomer_charges_nobody_absurdly_who_did_not_name_the_price(
    network: Network, stranger: Person, tmp_path: Path
) -> None:
    with (
        engine(tmp_path, LONE_MODEL) as backend,
        joined(network, stranger, tmp_path, "lone", backend, *asking(ABSURD_USD)) as said,
    ):
        wait_until(lambda: is_serving(network, "lone"), f"not serving; it said: {tail(said)}")
        refused = chat(network, LONE_MODEL)
        assert (refused.status, refused.error()["code"]) == (503, "no_eligible_node")
        assert "usual_price (1)" in refused.error()["message"]
        assert "max_price" in refused.error()["message"]
        named = chat(network, LONE_MODEL, provider={"max_price": ABSURD_USD}, max_tokens=500)
        assert (named.status, named.error()["code"]) == (402, "insufficient_credits")
        assert f"${ABSURD_USD} written" in named.error()["message"]
        assert "a lower max_price needs less" in named.error()["message"]
