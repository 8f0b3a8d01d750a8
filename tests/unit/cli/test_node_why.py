from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparewatt.core.rng import seeded
from sparewatt.node.identity import load_or_create_key
from tests.unit.cli.canned import BERLIN
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

ANSWER = {"node": BERLIN, "name": "berlin", "matches": 3, "sentences": ["The node got no job.", "It was \x1b[1moff."]}


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
    assert network.seen == []


def test_an_unknown_node_is_not_found(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/nodes/nobody/why", 404, "not_found")
    assert run("node", "why", "nobody").exit_code == 4
