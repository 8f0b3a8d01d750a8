"""The official OpenAI clients, unmodified, against a real network: two majors of the Python one, and the Node one.

Each runs a small script of its own (tests/clients) that does what users do and prints what happened. The engine behind
the network is the deterministic one, so the text that must arrive is known; a real model is read in test_up.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from sparewatt.testing import count_tokens, expected_text, render_chat
from sparewatt.testing.engine.embeddings import vector
from tests.clients.chat import MAX_TOKENS, PROMPT
from tests.clients.installing import CLIENTS, NODE, node_package, python_with_openai2
from tests.integration.networks import Network
from tests.processes import wait_until

Report = dict[str, Any]

SCRIPT_S = 120.0
TEXT = expected_text(render_chat(PROMPT), max_tokens=MAX_TOKENS)
PROMPT_TOKENS = count_tokens(render_chat(PROMPT))
USAGE = [PROMPT_TOKENS, MAX_TOKENS, PROMPT_TOKENS + MAX_TOKENS]

COMMANDS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "Python 3": ("3.", lambda: [sys.executable, str(CLIENTS / "chat.py")]),
    "Python 2": ("2.", lambda: [str(python_with_openai2()), str(CLIENTS / "chat.py")]),
    "Node": ("7.", lambda: [str(NODE), str(node_package() / "chat.mjs")]),
}
"""The client's major version, and how its script is run."""

ERRORS = {
    "wrong_key": ("AuthenticationError", 401, "invalid_api_key", None),
    "wrong_key_chat": ("AuthenticationError", 401, "invalid_api_key", None),
    "unknown_model": ("NotFoundError", 404, "model_not_found", "model"),
    "unknown_model_retrieved": ("NotFoundError", 404, "model_not_found", "model"),
    "unknown_model_streamed": ("NotFoundError", 404, "model_not_found", "model"),
    "malformed": ("BadRequestError", 400, "invalid_value", "max_tokens"),
    "overflow": ("BadRequestError", 400, "context_length_exceeded", None),
    "overflow_streamed": ("BadRequestError", 400, "context_length_exceeded", None),
    "overflow_of_a_text": ("BadRequestError", 400, "context_length_exceeded", None),
}


@pytest.fixture(scope="module", params=COMMANDS)
def report(request: pytest.FixtureRequest, shared_network: Network) -> Report:
    """What one client's script saw."""
    major, command = COMMANDS[request.param]
    argv = [*command(), shared_network.base_url, shared_network.api_key, shared_network.model]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SCRIPT_S, check=False)
    assert done.returncode == 0, done.stderr
    seen: Report = json.loads(done.stdout)
    assert seen["version"].startswith(major)
    return seen


def test_models_are_listed_and_retrieved(shared_network: Network, report: Report) -> None:
    assert report["models"] == [shared_network.model]
    assert report["model"] == shared_network.model


def test_a_whole_answer_arrives(report: Report) -> None:
    assert report["whole"] == {"role": "assistant", "text": TEXT, "finish_reason": "length", "usage": USAGE}


def test_a_streamed_answer_arrives_in_pieces_with_its_counts(report: Report) -> None:
    pieces = report["streamed"]["pieces"]
    assert pieces > 1
    assert report["streamed"] == {**report["whole"], "text": TEXT, "usage": USAGE, "pieces": pieces}


def test_a_stream_brings_no_counts_when_not_asked_for(report: Report) -> None:
    assert report["streamed_without_usage"]["text"] == TEXT
    assert report["streamed_without_usage"]["usage"] is None


def test_a_text_goes_on_from_its_prompt(report: Report) -> None:
    assert report["completion"] == expected_text("Once upon", max_tokens=5)


def test_texts_become_vectors_by_the_clients_own_encoding(report: Report) -> None:
    assert report["embedding"] == {"vectors": [vector("one", 8), vector("two", 8)], "tokens": 2}


@pytest.mark.parametrize("mistake", ERRORS)
def test_a_mistake_is_raised_as_the_clients_own_error(report: Report, mistake: str) -> None:
    error = report[mistake]
    assert (error["class"], error["status"], error["code"], error["param"]) == ERRORS[mistake]
    assert error["message"]
    assert error["request_id"]


def test_an_overflow_that_the_model_server_found_is_worded_as_openai_does(report: Report) -> None:
    for overflow in ("overflow", "overflow_streamed", "overflow_of_a_text"):
        assert report[overflow]["message"].startswith("This model's maximum context length is 8192 tokens.")


def test_what_only_the_model_server_can_refuse_is_a_bad_request_too(report: Report) -> None:
    error = report["malformed_for_the_model"]
    assert (error["class"], error["status"]) == ("BadRequestError", 400)
    assert "rejected the request (bad_request)" in error["message"], "in our words: a server's own go nowhere"


def test_a_stream_that_is_left_is_cancelled_and_the_next_one_served(shared_network: Network, report: Report) -> None:
    match_id = report["aborted"]["match_id"]
    wait_until(lambda: _get(shared_network, f"/matches/{match_id}")["outcome"] != "running", "the job is still running")
    assert _get(shared_network, f"/matches/{match_id}")["outcome"] == "cancelled"
    wait_until(lambda: _jobs_at_nodes(shared_network) == 0, "a node still works on it")
    assert report["after_abort"]["text"] == TEXT


def _get(network: Network, path: str) -> dict[str, Any]:
    request = urllib.request.Request(network.base_url + path, headers={"authorization": f"Bearer {network.api_key}"})  # noqa: S310 (our own loopback address)
    with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310 (as above)
        found: dict[str, Any] = json.load(reply)
        return found


def _jobs_at_nodes(network: Network) -> int:
    return sum(node["running"] + node["in_flight"] for node in _get(network, "/nodes")["data"])
