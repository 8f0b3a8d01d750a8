from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparewatt.cli.node.node import region_warning
from sparewatt.core.rng import seeded
from sparewatt.node.identity import load_or_create_key
from tests.unit.cli.canned import BERLIN
from tests.unit.cli.conftest import Run, run_alone
from tests.unit.cli.fake_agent import STATUS, running_agent
from tests.unit.cli.fake_network import KEY, FakeNetwork

ANSWER = {
    "node": BERLIN,
    "name": "berlin",
    "matches": 3,
    "chosen": 0,
    "outcomes": {},
    "lost": {"count": 0, "mean_gap_s": None, "worst_parts_s": {}},
    "rejected": {"online": 3},
    "ruled_out": 0,
    "unlisted": 0,
    "sentences": ["The node got no job.", "It was \x1b[1moff."],
}


def test_why_says_it_in_sentences(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes/berlin/why", ANSWER)
    result = run("node", "why", "berlin")
    assert result.exit_code == 0
    assert "The node got no job.\n" in result.stdout
    assert "\x1b" not in result.stdout
    assert BERLIN in result.stdout


def test_why_as_json_is_the_answer_of_the_api(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes/berlin/why?last=20", ANSWER)
    assert json.loads(run("node", "why", "berlin", "--last", "20", "--json").stdout) == ANSWER


def test_without_a_name_it_is_this_machines_node(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path / "node", rng=seeded(1))
    network.on(f"GET /v1/nodes/{key.address}/why", ANSWER)
    assert run("node", "why", "--data", str(tmp_path / "node")).exit_code == 0


def test_without_a_name_and_without_a_node_here_it_asks_for_one(
    network: FakeNetwork, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = run("node", "why")
    assert result.exit_code == 1
    assert "Name the node" in result.stderr
    assert network.requests == []


def test_an_unknown_node_is_not_found(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/nodes/nobody/why", 404, "not_found")
    assert run("node", "why", "nobody").exit_code == 4


@pytest.fixture
def owner(tmp_path: Path, network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An owner's own machine: an agent that has joined the network, and no address in the environment."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with running_agent(tmp_path / "sparewatt" / "node") as agent:
        agent.answer = {"status": STATUS | {"gateway": network.base_url.removesuffix("/v1")}}
        yield load_or_create_key(agent.folder, rng=seeded(1)).address


@pytest.mark.parametrize("words", [("node", "why"), ("node", "earnings")])
def test_without_a_key_the_error_names_where_to_log_in(
    owner: str, network: FakeNetwork, words: tuple[str, ...]
) -> None:
    result = run_alone(*words)
    assert result.exit_code == 3, owner
    assert f"sparewatt login --base-url {network.base_url}" in result.stderr


def test_the_default_network_is_the_one_that_the_agent_has_joined(
    owner: str, network: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.on(f"GET /v1/nodes/{owner}/why", ANSWER)
    monkeypatch.setenv("SPAREWATT_API_KEY", KEY)
    assert "The node got no job." in run_alone("node", "why").stdout
    elsewhere = run_alone("node", "why", "--base-url", "http://127.0.0.1:1/v1")
    assert elsewhere.exit_code == 1
    assert "127.0.0.1:1" in elsewhere.stderr


# join tokens: the line to copy is alone on stdout, on a terminal and in a pipe

LINE = "pip install 'sparewatt[node] @ https://g/dl/s.whl' && sparewatt node join https://g --token join-sw-1"


@pytest.fixture
def made(network: FakeNetwork) -> dict[str, Any]:
    answer = {"token": "join-sw-1", "expires_at": 5.0, "join_line": LINE}
    network.on("POST /v1/join-tokens", answer)
    return answer


def test_the_line_stands_alone_on_stdout(made: dict[str, Any], run: Run) -> None:
    result = run("node", "token")
    assert result.stdout == made["join_line"] + "\n"
    assert "one node" in result.stderr
    assert "join-sw-" not in result.stderr


def test_the_token_alone_and_everything_as_json(made: dict[str, Any], run: Run) -> None:
    assert run("node", "token", "--quiet").stdout == "join-sw-1\n"
    assert json.loads(run("node", "token", "--json").stdout) == made


def test_a_gateway_without_a_wheel_still_gives_a_line(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/join-tokens", {"token": "join-sw-1", "expires_at": 5.0, "join_line": None})
    assert run("node", "token").stdout.endswith("--token join-sw-1\n")
    assert run("node", "token").stdout.startswith("sparewatt node join http")


# regions


@pytest.mark.parametrize("region", ["local", "DE", "de-berlin", "eu-west", "UK", "us-east", "apac"])
def test_a_region_that_names_a_place_needs_no_warning(region: str) -> None:
    assert region_warning(region) is None


@pytest.mark.parametrize("region", ["Atlantis", "attic", "eu-west-2"])
def test_the_warning_of_an_unknown_region_lists_the_known_ones(region: str) -> None:
    warning = region_warning(region)
    assert warning is not None
    assert all(word in warning for word in (region, "DE", "EUROPE", "LATAM"))
