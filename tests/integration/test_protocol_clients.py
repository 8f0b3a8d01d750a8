"""The clients of Anthropic (Python and Node) and of Ollama (Python), unmodified, against a real network.

Each runs a script of its own (tests/clients): a conversation of three turns with a tool call, in whose second turn the
node that writes is killed; then a prompt that is too long, and what users get wrong. The engine is the deterministic
one, so the text that must arrive is known.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.testing import expected_text, render_chat
from sparewatt.testing.engine.embeddings import vector
from tests.clients.installing import CLIENTS, NODE, node_package, python_of_protocols
from tests.integration.asking import ask
from tests.integration.seams import Arena, arena

Json = dict[str, Any]

SCRIPT_S = 150.0
LONG_TOKENS, SHORT_TOKENS = 40, 6
ENGINE_TOKENS = 80
"""Of each answer that no limit ends."""
SYSTEM = {"role": "system", "content": "You are a station."}
QUESTION = {"role": "user", "content": "What is the weather in Rome?"}
RESULT = "sunny, 21 degrees"
FOLLOW_UP = {"role": "user", "content": "And tomorrow? Grüße 🙂"}

ANTHROPIC: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "Python": ("2.", lambda: [str(python_of_protocols()), str(CLIENTS / "messages.py")]),
    "Node": ("1.", lambda: [str(NODE), str(node_package("node-anthropic") / "messages.mjs")]),
}
"""The client's major version, and how its script is run."""


def expected(messages: list[Json], tokens: int) -> str:
    return expected_text(render_chat(messages), max_tokens=tokens, answer_length=ENGINE_TOKENS)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("clients"), server=server) as found:
        yield found


def run_script(argv: list[str], mortal: Arena) -> Json:
    """Run it, and kill the node that writes as soon as its long answer has begun to arrive."""
    mortal.revive()
    network = mortal.network
    process = subprocess.Popen(
        [*argv, network.root_url, network.api_key, "mortal"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(SCRIPT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        if first.startswith("writing"):
            mortal.strike(mortal.busiest()[0], signal.SIGKILL)
        rest, errors = process.communicate()
    finally:
        watchdog.cancel()
        process.kill()
    assert process.returncode == 0, errors
    assert first.startswith("writing")
    report: Json = json.loads(rest)
    return report


# Anthropic


@pytest.fixture(scope="module", params=ANTHROPIC)
def messages(request: pytest.FixtureRequest, mortal: Arena) -> Json:
    """What one client's script saw."""
    major, command = ANTHROPIC[request.param]
    report = run_script(command(), mortal)
    assert report["version"].startswith(major)
    return report


def chat_with_result(call_id: str, arguments: Json) -> list[Json]:
    """The chat that the second turn becomes."""
    function = {"name": "get_weather", "arguments": json.dumps(arguments, separators=(",", ":"))}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}
    return [QUESTION, call, {"role": "tool", "content": RESULT}]


def test_a_tool_is_called_whole_and_streamed_alike(messages: Json) -> None:
    (block,) = messages["call"]["blocks"]
    assert (block["type"], block["name"]) == ("tool_use", "get_weather")
    assert set(block["input"]) == {"city"}
    assert messages["call"]["stop_reason"] == "tool_use"
    (streamed,) = messages["streamed_call"]["blocks"]
    assert (streamed["name"], streamed["input"]) == ("get_weather", block["input"])


def test_an_answer_goes_on_when_its_node_is_killed(mortal: Arena, messages: Json) -> None:
    (block,) = messages["call"]["blocks"]
    long = messages["long"]
    assert long["text"] == expected([SYSTEM, *chat_with_result(block["id"], block["input"])], LONG_TOKENS)
    assert (long["stop_reason"], long["usage"][1]) == ("max_tokens", LONG_TOKENS)
    attempts = ask(mortal.network, "GET", f"/v1/matches/{long['match_id']}").json()["attempts"]
    assert sum(bool(attempt["tokens"]) for attempt in attempts) == 2


def test_a_conversation_goes_on_after_it(messages: Json) -> None:
    (block,) = messages["call"]["blocks"]
    before = [SYSTEM, *chat_with_result(block["id"], block["input"])]
    said = {"role": "assistant", "content": messages["long"]["text"]}
    assert messages["last"]["text"] == expected([*before, said, FOLLOW_UP], SHORT_TOKENS)
    assert messages["last"]["stop_reason"] == "max_tokens"
    assert messages["last"]["usage"][1] == SHORT_TOKENS


def test_models_are_listed_and_tokens_counted(messages: Json) -> None:
    assert messages["models"] == ["mortal"]
    assert messages["model"] == "mortal"
    assert messages["counted"] > 0


def test_a_key_may_come_as_a_bearers(messages: Json) -> None:
    assert messages["by_bearer"] == expected([SYSTEM, QUESTION], SHORT_TOKENS)


@pytest.mark.parametrize("case", ["full", "full_streamed"])
def test_a_prompt_that_is_too_long_is_the_clients_own_error(messages: Json, case: str) -> None:
    error = messages[case]
    assert (error["class"], error["status"], error["type"]) == ("BadRequestError", 400, "invalid_request_error")
    assert error["message"].startswith("prompt is too long: ")


@pytest.mark.parametrize(
    ("case", "kind", "status", "name"),
    [
        ("wrong_key", "AuthenticationError", 401, "authentication_error"),
        ("unknown_model", "NotFoundError", 404, "not_found_error"),
        ("malformed", "BadRequestError", 400, "invalid_request_error"),
        ("refused", "BadRequestError", 400, "invalid_request_error"),
    ],
)
def test_a_mistake_is_raised_as_anthropics_error(messages: Json, case: str, kind: str, status: int, name: str) -> None:
    error = messages[case]
    assert (error["class"], error["status"], error["type"]) == (kind, status, name)
    assert error["message"]
    assert error["request_id"]


# Ollama


@pytest.fixture(scope="module")
def chats(mortal: Arena) -> Json:
    return run_script([str(python_of_protocols()), str(CLIENTS / "ollama_chat.py")], mortal)


def test_ollamas_lists_have_the_model(chats: Json) -> None:
    assert chats["models"] == ["mortal"]
    assert chats["running"] == ["mortal"]
    assert {"completion", "tools", "embedding"} <= set(chats["capabilities"])


def test_ollama_calls_a_tool_whole_and_streamed_alike(chats: Json) -> None:
    ((name, arguments),) = chats["call"]
    assert (name, set(arguments)) == ("get_weather", {"city"})
    assert chats["streamed_call"] == chats["call"]


def test_ollamas_answer_goes_on_when_its_node_is_killed(chats: Json) -> None:
    ((_, arguments),) = chats["call"]
    before, long = chat_with_result("call_1_0", arguments), chats["long"]
    assert long["text"] == expected(before, LONG_TOKENS)
    assert (long["done"], long["done_reason"], long["usage"][1]) == (True, "length", LONG_TOKENS)
    said = {"role": "assistant", "content": long["text"]}
    assert chats["last"]["text"] == expected([*before, said, FOLLOW_UP], SHORT_TOKENS)


def test_ollamas_prompts_and_texts_are_answered(chats: Json) -> None:
    wanted = expected([QUESTION], SHORT_TOKENS)
    assert (chats["tagged"], chats["generated"]) == (wanted, wanted)
    assert chats["raw"] == expected_text("Once upon", max_tokens=SHORT_TOKENS, answer_length=ENGINE_TOKENS)
    assert chats["loaded"] == "load"
    assert isinstance(json.loads(chats["json"]), dict)
    assert chats["embedded"] == [vector("one", 8), vector("two", 8)]


@pytest.mark.parametrize(
    ("case", "status"),
    [
        *[("full", 400), ("full_streamed", 400), ("wrong_key", 401), ("unknown_model", 404)],
        *[("malformed", 400), ("refused", 400), ("pull", 404)],
    ],
)
def test_a_mistake_is_raised_as_ollamas_error(chats: Json, case: str, status: int) -> None:
    error = chats[case]
    assert (error["class"], error["status"]) == ("ResponseError", status)
    assert error["message"]
