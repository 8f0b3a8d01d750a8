from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.unit.cli.canned import BERLIN, NEURALGRID, node, node_list
from tests.unit.cli.conftest import Run, run_alone
from tests.unit.cli.fake_network import FakeNetwork, piece, sse

POLICY = "region: [NO, SE]  # NO is Norway\nvram_gb: '>=24'\n"
FIELDS = {"region": ["NO", "SE"], "vram_gb": ">=24"}
COMMANDS = [("chat", "m", "Hello"), ("match", "m")]


@pytest.fixture
def network(network: FakeNetwork) -> FakeNetwork:
    network.streams(sse(piece("Hi", "stop"), "[DONE]"))
    network.on("POST /v1/match", NEURALGRID)
    return network


def policy_file(folder: Path, text: str) -> str:
    file = folder / "policy.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_policy_file_goes_into_the_body(
    network: FakeNetwork, run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert run(*command, "--policy", policy_file(tmp_path, POLICY)).exit_code == 0
    assert network.requests[0].body["provider"] == FIELDS


def test_a_policy_file_lists_the_nodes_that_it_allows(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    words = ("nodes", "-q", "--policy", policy_file(tmp_path, POLICY))
    network.on(f"GET /v1/nodes?{urlencode({'q': 'region=NO,SE vram_gb>=24'})}", node_list(node(BERLIN, "berlin")))
    assert run(*words).stdout.split() == [BERLIN]


@pytest.mark.parametrize(
    "words",
    [
        ("chat", "m", "Hello", "--route", "region=EU"),
        ("match", "m", "--route", "region=EU"),
        ("nodes", "list", "region=EU"),
    ],
)
def test_a_policy_file_and_a_query_exclude_each_other(
    network: FakeNetwork, run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = run(*words, "--policy", policy_file(tmp_path, POLICY))
    assert result.exit_code == 2
    assert "give one of them" in result.stderr
    assert network.requests == []


@pytest.mark.parametrize("command", [*COMMANDS, ("nodes", "list"), ("keys", "create", "my-app")])
@pytest.mark.parametrize(
    "fault",
    [
        ("region: [EU]\nregoin: EU\n", ":2: "),
        ("region: [EU\n", "YAML"),
        ("region: EU\nregion: US\n", "given twice"),
        ("# nothing\n", "would allow every node"),
        ("\xff", "UTF-8"),
    ],
)
def test_an_error_in_a_policy_file_is_found_before_anything_is_sent(
    network: FakeNetwork, run: Run, tmp_path: Path, command: tuple[str, ...], fault: tuple[str, str]
) -> None:
    text, error = fault
    file = tmp_path / "policy.yaml"
    file.write_text(text, encoding="latin-1")
    result = run(*command, "--policy", str(file))
    assert result.exit_code == 2
    assert "'--policy'" in result.stderr
    assert str(file) in result.stderr
    assert error in result.stderr
    assert network.requests == []


@pytest.mark.parametrize("command", [*COMMANDS, ("nodes", "list"), ("keys", "create", "my-app")])
def test_a_policy_file_that_is_not_there_is_a_usage_error(
    network: FakeNetwork, run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    result = run(*command, "--policy", str(tmp_path / "missing.yaml"))
    assert result.exit_code == 2
    assert "missing.yaml cannot be read: No such file" in result.stderr
    assert network.requests == []


def test_without_pyyaml_the_error_names_what_to_install(
    network: FakeNetwork, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    result = run("chat", "m", "Hello", "--policy", policy_file(tmp_path, POLICY))
    assert result.exit_code == 1
    assert "pip install 'sparewatt[yaml]'" in result.stderr
    assert network.requests == []


def test_a_query_in_the_place_of_a_file_is_sent_to_its_own_option(network: FakeNetwork, run: Run) -> None:
    result = run("chat", "m", "Hello", "--policy", "region=EU")
    assert result.exit_code == 2
    assert "A query goes into --route." in result.stderr
    assert network.requests == []


def test_one_ranking_is_enough(network: FakeNetwork, run: Run) -> None:
    result = run("chat", "m", "Hello", "--policy", "fast", "--ranking", "economy")
    assert result.exit_code == 2
    assert "are both rankings" in result.stderr
    assert network.requests == []


def test_a_policy_file_and_a_ranking_go_together(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    words = ["--policy", policy_file(tmp_path, POLICY), "--ranking", "fast"]
    assert run("chat", "m", "Hello", *words).exit_code == 0
    assert network.requests[0].headers["X-Sparewatt-Policy"] == "fast"
    assert network.requests[0].body["provider"] == FIELDS


@pytest.mark.parametrize("words", [["chat"], ["match"], ["nodes", "list"], ["keys", "create"], ["keys", "limit"]])
def test_help_names_the_policy_file(words: list[str]) -> None:
    text = run_alone(*words, "--help").stdout
    assert "--policy FILE" in text
    assert "YAML or JSON" in " ".join(text.split())
