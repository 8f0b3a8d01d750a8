"""Conversations over real processes whose engines keep prompts: turns stay where they were read, and it shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparewatt.inference.matcher.newcomers import TIMED_JOBS
from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import Reply, ask
from tests.integration.networks import Network, start_network

LONG = "The river runs down to the sea and the sea gives it back. " * 200
TURNS = 4


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    env = {"SPAREWATT_ENGINE_PREFIX_CACHE_TOKENS": "100000"}
    flags = ("--engine=deterministic", "--nodes=2")
    with start_network(tmp_path_factory.mktemp("prefixes"), *flags, env=env, server=server) as network:
        for number in range(2 * TIMED_JOBS):  # newcomers take turns, whatever they have cached
            say(network, f"How fast are you, node {number % 2}?")
        yield network


def say(network: Network, *messages: str) -> Reply:
    turns = [{"role": "user", "content": message} for message in messages]
    body = {"model": network.model, "messages": turns, "max_tokens": 8}
    reply = ask(network, "POST", "/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    return reply


def cached_tokens(reply: Reply) -> int:
    found: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


def chosen(network: Network, reply: Reply) -> dict[str, Any]:
    """The candidate that was taken, as its match explains it."""
    told = ask(network, "GET", f"/v1/matches/{reply.headers['x-sparewatt-match-id']}").json()
    found: dict[str, Any] = next(line for line in told["ranked"] if line["node"] == told["chosen"])
    return found


def test_turns_of_a_conversation_stay_on_one_node_which_reads_only_what_is_new(network: Network) -> None:
    first = say(network, LONG)
    assert cached_tokens(first) == chosen(network, first)["cached_tokens"] == 0
    later = [say(network, LONG, *("and then?" for _ in range(turn))) for turn in range(1, TURNS)]
    assert {reply.headers["x-sparewatt-node"] for reply in later} == {first.headers["x-sparewatt-node"]}
    for reply in later:
        assert cached_tokens(reply) > 1000
        assert chosen(network, reply)["cached_tokens"] > 1000
        assert chosen(network, reply)["parts"]["prefill"] < chosen(network, first)["parts"]["prefill"] / 2


def test_another_prompt_is_read_from_its_start(network: Network) -> None:
    say(network, LONG)
    other = say(network, f"Once upon a time. {LONG}")
    assert cached_tokens(other) == chosen(network, other)["cached_tokens"] == 0
