"""The line to copy stands alone on stdout, on a terminal and in a pipe."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

LINE = "pip install 'sparewatt[node] @ https://g/dl/s.whl' && sparewatt node join https://g --token join-sw-1"


@pytest.fixture
def made(network: FakeNetwork) -> dict[str, str]:
    answer = {"token": "join-sw-1", "join_line": LINE}
    network.on("POST /v1/join-tokens", answer)
    return answer


def test_the_line_stands_alone_on_stdout(made: dict[str, str], run: Run) -> None:
    result = run("node", "token")
    assert result.stdout == made["join_line"] + "\n"
    assert "one node" in result.stderr
    assert "join-sw-" not in result.stderr


def test_the_token_alone_and_everything_as_json(made: dict[str, str], run: Run) -> None:
    assert run("node", "token", "--quiet").stdout == "join-sw-1\n"
    assert json.loads(run("node", "token", "--json").stdout) == made


def test_a_gateway_without_a_wheel_still_gives_a_line(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/join-tokens", {"token": "join-sw-1"})
    assert run("node", "token").stdout.endswith("--token join-sw-1\n")
    assert run("node", "token").stdout.startswith("sparewatt node join http")
