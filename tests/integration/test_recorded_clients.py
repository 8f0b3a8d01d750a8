"""Requests of programs that are too large to run here, as they were recorded against a network, sent once more.

Texts in them are shortened and ids are blanked out; fields, types and headers are as the programs sent them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.asking import ask, connection_to
from tests.integration.networks import Network

Json = dict[str, Any]

RECORDED = Path(__file__).parents[1] / "clients" / "recorded"
CLAUDE_CODE: list[Json] = json.loads((RECORDED / "claude-code-2.1.json").read_text())
OPEN_WEBUI: list[Json] = json.loads((RECORDED / "open-webui-0.12.json").read_text())


@pytest.fixture(scope="module")
def aliased(shared_network: Network) -> Iterator[Network]:
    """A network whose operator maps all names that Claude Code may ask for."""
    made = ask(shared_network, "POST", "/v1/model-aliases", {"name": "claude-*", "target": shared_network.model})
    assert made.status == 201
    yield shared_network
    assert ask(shared_network, "DELETE", "/v1/model-aliases/claude-*").status == 200


def send(network: Network, recorded: Json) -> tuple[int, dict[str, str], bytes]:
    headers = recorded["headers"] | {"x-api-key": network.api_key}
    body = json.dumps(recorded["body"]).encode() if recorded["body"] is not None else None
    with connection_to(network) as connection:
        connection.request(recorded["method"], recorded["path"], body, headers)
        reply = connection.getresponse()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()


def named(recorded: Json) -> str:
    turns = len((recorded["body"] or {}).get("messages", ()))
    return f"{recorded['method']} {recorded['path'].partition('?')[0]}, {turns} turns"


def streamed(recorded: Json) -> bool:
    return bool(recorded["body"] and recorded["body"].get("stream"))


@pytest.mark.parametrize("recorded", [each for each in CLAUDE_CODE if not streamed(each)], ids=named)
def test_what_claude_code_asks_beside_its_answers_is_there(aliased: Network, recorded: Json) -> None:
    status, _, body = send(aliased, recorded)
    assert status == 200
    assert recorded["body"] is None or json.loads(body)["input_tokens"] > 0


@pytest.mark.parametrize("recorded", [each for each in CLAUDE_CODE if streamed(each)], ids=named)
def test_what_claude_code_asks_is_answered_in_its_protocol(aliased: Network, recorded: Json) -> None:
    status, headers, body = send(aliased, recorded)
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert events[0]["message"]["model"] == "claude-sonnet-4-5"
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") > 0
    assert events[-2]["delta"]["stop_reason"] in ("end_turn", "tool_use")
    assert events[-2]["usage"]["output_tokens"] > 0
    assert "metadata" in headers["x-sparewatt-ignored-params"]


def test_another_programs_names_lead_nowhere(aliased: Network) -> None:
    body = CLAUDE_CODE[1]["body"] | {"model": "gpt-9", "stream": False}
    status, _, reply = send(aliased, CLAUDE_CODE[1] | {"body": body})
    assert (status, json.loads(reply)["error"]["type"]) == (404, "not_found_error")


# Open WebUI, by its connection to Ollama


@pytest.mark.parametrize("recorded", OPEN_WEBUI, ids=named)
def test_what_open_webui_asks_is_answered_in_ollamas_protocol(shared_network: Network, recorded: Json) -> None:
    body = recorded["body"] and recorded["body"] | {"model": shared_network.model}
    status, headers, reply = send(shared_network, recorded | {"body": body})
    assert status == 200
    if recorded["path"] != "/api/chat":
        assert json.loads(reply)
        return
    assert headers["content-type"].startswith("application/x-ndjson" if streamed(recorded) else "application/json")
    *pieces, last = [json.loads(line) for line in reply.splitlines()]
    assert all(piece["done"] is False for piece in pieces)
    assert (last["done"], last["eval_count"] > 0) == (True, True)
    said = [each["message"] for each in (*pieces, last)]
    is_cut = last["done_reason"] == "length"  # a call that was cut off is left out
    assert is_cut or any(message["content"] or message.get("tool_calls") for message in said)
