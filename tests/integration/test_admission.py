"""More work than a network can do: who waits, who is told no, and that nobody is starved or lost. Real processes."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from select import select

import pytest

from sparewatt.inference.admission.model import WAITING_PER_ACCOUNT_MAX
from sparewatt.inference.matcher.capacity import NODE_AHEAD_PER_SLOT
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.testing import expected_text, render_chat
from tests.integration.asking import Reply, ask, chat_body, connection_to
from tests.integration.cascade import nodes
from tests.integration.networks import Network, start_network, wait_until
from tests.integration.people import give_credits, sign_up

CHAT = "/v1/chat/completions"
SLOTS = 2
PLACES = SLOTS * (1 + NODE_AHEAD_PER_SLOT)
FLOOD = PLACES + WAITING_PER_ACCOUNT_MAX + 26
TOKENS = 30
"""A quarter of a second of the engine's time."""
KEYS = 60
BYSTANDING = 20
"""Requests of somebody else while one account floods with all of its keys."""
TOKENS_LONG = 7000
"""About a minute: as good as for ever, in a test that ends these jobs itself."""
AT_ONCE_S = 1.0
"""A request that was told nothing for this long waits or runs; looked at again until it is so."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    env = {"SPAREWATT_ENGINE_SLOTS": str(SLOTS)}
    flags = ("--engine=deterministic", "--nodes=1")
    with start_network(tmp_path_factory.mktemp("full"), *flags, env=env, server=server) as network:
        assert nodes(network)["node-1"]["slots"] == SLOTS
        yield network


def new_key(network: Network, name: str) -> str:
    made: str = ask(network, "POST", "/v1/keys", {"name": name, "scopes": ["inference"]}).json()["key"]
    return made


def in_flight(network: Network) -> int:
    found: int = nodes(network)["node-1"]["in_flight"]
    return found


def whole_chat(network: Network, prompt: str, *, key: str) -> Reply:
    body = chat_body(network, prompt, max_tokens=TOKENS, ignore_eos=True)
    return ask(network, "POST", CHAT, body, key=key)


def check_answer(reply: Reply, prompt: str) -> None:
    assert reply.status == 200, reply.body
    rendered = render_chat([{"role": "user", "content": prompt}])
    text = expected_text(rendered, max_tokens=TOKENS, answer_length=TOKENS)
    assert reply.json()["choices"][0]["message"]["content"] == text


def check_refusal(reply: Reply) -> None:
    error = reply.error()
    assert (reply.status, error["type"], error["code"]) == (429, "rate_limit_error", "queue_full")
    assert int(reply.headers["retry-after"]) >= 1
    assert int(reply.headers["x-sparewatt-queue-position"]) == error["queue_position"]
    assert error["queue_position"] >= WAITING_PER_ACCOUNT_MAX  # of one that made room for another key, its last


class Flood:
    """Keys of one account, many requests at the same time."""

    def __init__(self, network: Network, pool: ThreadPoolExecutor, *keys: str, count: int = FLOOD) -> None:
        self._network = network
        self._keys = keys
        self._lock = threading.Lock()
        self.over: list[Reply] = []
        self._replies: list[Future[Reply]] = [pool.submit(self._ask, number) for number in range(count)]

    def _ask(self, number: int) -> Reply:
        reply = whole_chat(self._network, f"flood {number}", key=self._keys[number % len(self._keys)])
        with self._lock:
            self.over.append(reply)
        return reply

    def was_refused(self) -> bool:
        with self._lock:
            return any(reply.status == 429 for reply in self.over)

    def replies(self) -> list[Reply]:
        return [reply.result(90) for reply in self._replies]


def test_a_key_that_floods_starves_no_other_and_nothing_is_lost(network: Network) -> None:
    flooding, other = new_key(network, "flooding"), new_key(network, "other")
    with ThreadPoolExecutor(FLOOD) as pool:
        flood = Flood(network, pool, flooding)
        wait_until(flood.was_refused, "the line is not full")
        answers = {prompt: whole_chat(network, prompt, key=other) for prompt in ("one", "two", "three")}
        ended_before = len(flood.over)
        replies = flood.replies()
    for prompt, answer in answers.items():
        check_answer(answer, prompt)
        assert int(answer.headers["x-sparewatt-queue-position"]) <= 2
        assert int(answer.headers["x-sparewatt-queued-ms"]) >= 0
    assert ended_before < FLOOD, "the other key was served only after all of the flood"
    served = 0
    for number, reply in enumerate(replies):
        if reply.status == 429:
            check_refusal(reply)
        else:
            check_answer(reply, f"flood {number}")
            served += 1
    assert WAITING_PER_ACCOUNT_MAX < served < FLOOD  # the line, and what the node had: a fresh one may seem part taken
    wait_until(lambda: in_flight(network) == 0, "a job is still there")


def test_all_keys_of_an_account_leave_a_bystander_his_place(network: Network) -> None:
    """The flood has more jobs than the whole line takes, and hardly two of any key."""
    flooding = [new_key(network, f"flooding {number}") for number in range(KEYS)]
    bystander = give_credits(network, sign_up(network, "bystander@example.org"))
    with ThreadPoolExecutor(2 * KEYS + BYSTANDING) as pool:
        flood = Flood(network, pool, *flooding, count=2 * KEYS)
        wait_until(flood.was_refused, "the account's share of the line is not full")
        asked = [pool.submit(whole_chat, network, f"by {n}", key=bystander.key) for n in range(BYSTANDING)]
        for number, reply in enumerate(asked):
            check_answer(reply.result(90), f"by {number}")
        replies = flood.replies()
    refused = [reply for reply in replies if reply.status == 429]
    assert refused
    assert all("This account has" in reply.error()["message"] for reply in refused)
    wait_until(lambda: in_flight(network) == 0, "a job is still there")


@contextmanager
def long_request(network: Network, *, key: str) -> Iterator[http.client.HTTPConnection]:
    """A request that takes as long as it is held. Nothing of its reply is read."""
    body = json.dumps(chat_body(network, "hold", max_tokens=TOKENS_LONG, ignore_eos=True, stream=True)).encode()
    with connection_to(network) as connection:
        connection.request("POST", CHAT, body=body, headers={"authorization": f"Bearer {key}"})
        yield connection


def is_refused(network: Network, *, key: str) -> bool:
    """Whether one more would be told no. One that is let into the line leaves it again."""
    with long_request(network, key=key) as connection:
        assert connection.sock is not None
        connection.sock.settimeout(AT_ONCE_S)
        try:
            return connection.getresponse().status == 429
        except TimeoutError:
            return False


def test_a_client_that_leaves_the_line_frees_its_place(network: Network) -> None:
    key = new_key(network, "patient")
    with ExitStack() as held:
        for _ in range(PLACES):
            held.enter_context(long_request(network, key=key))
        wait_until(lambda: in_flight(network) == PLACES, "the node is not full")
        waiting = [held.enter_context(long_request(network, key=key)) for _ in range(WAITING_PER_ACCOUNT_MAX)]

        def is_full() -> bool:
            """A look that overtakes one of those who wait takes its place; that one has to come again."""
            if is_refused(network, key=key):
                return True
            for at in [at for at, connection in enumerate(waiting) if select([connection.sock], [], [], 0)[0]]:
                waiting[at] = held.enter_context(long_request(network, key=key))
            return False

        wait_until(is_full, "the key's share of the line is not full")
        assert is_refused(network, key=key)
        assert in_flight(network) == PLACES
        waiting[10].close()
        wait_until(lambda: not is_refused(network, key=key), "the place in line is not free")
        assert in_flight(network) == PLACES
    wait_until(lambda: in_flight(network) == 0, "a job of a client that left is still there")
    check_answer(whole_chat(network, "after", key=key), "after")
