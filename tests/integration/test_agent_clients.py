"""Clients that count on state: Vercel's AI SDK and OpenAI's Agents SDK, unmodified, over three turns with a tool call.

The engine is deterministic: its text is a function of the whole prompt. So where two ways to carry a conversation give
the same three answers, the network saw the same conversation; and a broken answer that went on elsewhere is whole.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.testing import expected_text, render_chat
from tests.clients.installing import CLIENTS, NODE, ai_sdk_package, python_with_agents
from tests.integration.asking import ask
from tests.integration.cascade import all_serving, nodes, pid_of
from tests.integration.networks import Network, start_network, wait_until

SCRIPT_S = 120.0
STEPS = [1, 2, 1]
"""Answers of each turn: in the second a tool is called, and its result answered."""
OVERFLOW = (400, "context_length_exceeded")
STORY = ("user", "Tell me a long story.")

Report = dict[str, Any]
COMMANDS: dict[str, Callable[[], list[str]]] = {
    "AI SDK": lambda: [str(NODE), str(ai_sdk_package() / "turns.mjs")],
    "Agents SDK": lambda: [str(python_with_agents()), str(CLIENTS / "agent_turns.py")],
}


def command(name: str, network: Network, *more: str) -> list[str]:
    return [*COMMANDS[name](), network.base_url, network.api_key, network.model, *more]


def report_of(name: str, network: Network) -> Report:
    done = subprocess.run(command(name, network), capture_output=True, text=True, timeout=SCRIPT_S, check=False)
    assert done.returncode == 0, done.stderr
    report: Report = json.loads(done.stdout)
    return report


def test_the_ai_sdk_carries_a_conversation_by_references_as_it_does_by_messages(shared_network: Network) -> None:
    report = report_of("AI SDK", shared_network)
    assert [[turn["steps"] for turn in way["turns"]] for way in report.values()] == [STEPS] * 3
    assert report["responses"]["turns"] == report["chat"]["turns"] == report["compatible"]["turns"]
    assert all(turn["text"] for turn in report["responses"]["turns"])
    found = {(way["overflow"]["status"], way["overflow"]["code"]) for way in report.values()}
    assert found == {OVERFLOW}
    assert {way["overflow"]["name"] for way in report.values()} == {"AI_APICallError"}


def test_the_agents_sdk_carries_a_conversation_in_each_of_its_ways(shared_network: Network) -> None:
    report = report_of("Agents SDK", shared_network)
    assert [turn["steps"] for turn in report["session"]] == STEPS
    assert report["previous_response_id"] == report["session"] == report["conversation"]
    assert report["handoff"] == "teller"
    assert tuple(report["overflow"]) == OVERFLOW


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    """Two nodes that write slowly enough to be killed."""
    env = {"SPAREWATT_ENGINE_DECODE_TPS": "40"}
    flags = ("--engine=deterministic", "--nodes=2")
    with start_network(tmp_path_factory.mktemp("agents"), *flags, env=env, server=server) as network:
        yield network


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_is_whole_though_its_node_was_killed(mortal: Network, name: str) -> None:
    wait_until(lambda: all_serving(mortal), "both nodes serve")
    with subprocess.Popen(command(name, mortal, "stream"), stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "begun\n"
        (busy,) = [each for each, node in nodes(mortal).items() if node["in_flight"]]
        os.kill(pid_of(mortal, busy), signal.SIGKILL)
        text = json.loads(client.stdout.readline())
    assert client.returncode == 0
    system = [("system", "Be brief.")] if name == "Agents SDK" else []
    prompt = render_chat([{"role": role, "content": content} for role, content in (*system, STORY)])
    assert text == expected_text(prompt)
    match = ask(mortal, "GET", "/v1/matches").json()["data"][0]["match_id"]
    outcomes = [attempt["outcome"] for attempt in ask(mortal, "GET", f"/v1/matches/{match}").json()["attempts"]]
    assert len(outcomes) > 1
