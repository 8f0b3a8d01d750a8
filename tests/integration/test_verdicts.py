"""A node whose model server lies, beside two honest ones: others get their answers, and nobody hears its words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.testing import expected_text, render_chat
from tests.integration.asking import ask, stream_chat
from tests.integration.lying_server import MARKER, Lie, LyingServer, lying_server
from tests.integration.networks import Network
from tests.integration.unequal import MODEL, UnequalNode, running_engines, unequal_network

REQUESTS = 9
MAX_TOKENS = 8
ENGINES = (UnequalNode("liar", 4, 400.0), UnequalNode("honest-1", 2, 40.0), UnequalNode("honest-2", 2, 40.0))
"""The liar is ten times as fast: measured honestly, it is everyone's first choice."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[tuple[Network, LyingServer]]:
    folder = tmp_path_factory.mktemp("verdicts")
    with (
        running_engines(folder / "engines", ENGINES) as engines,
        lying_server(engines["liar"]) as (lying, url),
        unequal_network(folder, {**engines, "liar": url}, server=server) as network,
    ):
        yield network, lying
        lying.is_over.set()


def whole(network: Network, prompt: str, **more: object) -> str:
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": MAX_TOKENS, **more}
    reply = ask(network, "POST", "/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    text: str = reply.json()["choices"][0]["message"]["content"]
    return text


def expected(prompt: str) -> str:
    return expected_text(render_chat([{"role": "user", "content": prompt}]), max_tokens=MAX_TOKENS)


@pytest.mark.parametrize("lie", ["refuses", "fails", "breaks its stream", "talks nonsense", "is silent"])
def test_all_requests_are_answered_beside_a_node_that_lies(stage: tuple[Network, LyingServer], lie: Lie) -> None:
    network, lying = stage
    lying.lie, before = lie, lying.lies_told
    try:
        for number in range(REQUESTS):
            prompt = f"{lie} {number}"
            answer = stream_chat(network, prompt, model=MODEL, max_tokens=MAX_TOKENS)
            assert (answer.error, answer.done, answer.text) == (None, True, expected(prompt))
            assert whole(network, prompt) == expected(prompt)
    finally:
        lying.lie = ""
    assert lying.lies_told - before < REQUESTS, "its breaker opened"


def test_the_liar_was_asked(stage: tuple[Network, LyingServer]) -> None:
    assert stage[1].lies_told > 0


def test_nothing_that_it_said_was_told_to_anybody(stage: tuple[Network, LyingServer]) -> None:
    network, _ = stage
    matches = ask(network, "GET", "/v1/matches?limit=100")
    told = [matches.body]
    told += [ask(network, "GET", f"/v1/matches/{each['match_id']}").body for each in matches.json()["data"]]
    told += [ask(network, "GET", path).body for path in ("/v1/usage", "/v1/nodes")]
    told += [path.read_bytes() for path in network.log_dir.rglob("*") if path.is_file()]
    assert any(b"status 400: bad_request" in each for each in told)
    assert not any(MARKER.encode() in each for each in told)


def test_a_request_that_is_really_at_fault_is_refused_once_in_our_words(stage: tuple[Network, LyingServer]) -> None:
    network, lying = stage
    lying.lie = ""
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    other = {"type": "function", "function": {"name": "no_such_tool"}}
    message = {"role": "user", "content": "x"}
    body = {"model": MODEL, "messages": [message], "tools": [tool], "tool_choice": other}
    reply = ask(network, "POST", "/v1/chat/completions", body)
    assert (reply.status, reply.headers["x-sparewatt-attempts"]) == (400, "2")
    assert reply.error()["code"] == "invalid_request"
    assert "names no tool" not in reply.error()["message"], "so says the server"
    assert whole(network, "and goes on") == expected("and goes on")
