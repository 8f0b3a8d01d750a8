"""Health tells the truth: a network on a small disk that fills up, and a database that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from tests.disks import empty, fill, small_disk, why_no_disk
from tests.integration.asking import Answer, Reply, ask, chat_body, stream_chat
from tests.integration.bookkeeping import booked, dsn_of, inspect
from tests.integration.networks import Network, start_network, tail, wait_until
from tests.processes import commands_of, kill_all

pytestmark = pytest.mark.skipif(why_no_disk() is not None, reason=str(why_no_disk()))
DISK_MIB = 320
"""A new Postgres takes a quarter of it."""
STREAMS = 4
TOKENS = 400
"""At 120 tokens a second per node: enough time to fill the disk."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("health")
    with (
        small_disk(folder / "data", mib=DISK_MIB),
        start_network(folder, "--engine=deterministic", "--nodes=2") as network,
    ):
        yield network


def readiness(network: Network) -> Reply | None:
    with contextlib.suppress(OSError):
        return ask(network, "GET", "/readyz", key="")
    return None


def causes(network: Network) -> list[str]:
    """Why it is not ready, by code; `[]` only if it says that it is ready."""
    reply = readiness(network)
    if reply is None:
        return ["no answer"]
    body = reply.json()
    assert (reply.status == 200) == (body.get("status") == "ready")
    return [] if reply.status == 200 else [cause["code"] for cause in body.get("causes", ())]


def chat(network: Network, prompt: str) -> Reply:
    return ask(network, "POST", "/v1/chat/completions", chat_body(network, prompt, max_tokens=4))


def lines_printed(network: Network, words: str) -> int:
    return network.output.read_text().count(words)


def processes_named(network: Network, *words: str) -> list[int]:
    commands = commands_of(network.descendants())
    return [pid for pid, command in commands.items() if any(word in command for word in words)]


@contextlib.contextmanager
def postings_held_up(network: Network) -> Iterator[None]:
    """Nothing can be posted meanwhile: what a gateway has booked is in its journal alone."""
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(dsn_of(network)))
    try:
        loop.run_until_complete(connection.execute("BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
        yield
    finally:
        loop.run_until_complete(connection.close(timeout=5))
        loop.close()


def test_a_database_that_does_not_answer_is_said_and_answers_go_on(network: Network) -> None:
    assert chat(network, "before").status == 200
    stopped = processes_named(network, "postgres")
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: causes(network) == ["database_unavailable"], "it says that it is ready")
        assert chat(network, "meanwhile").status == 200
        wait_until(lambda: lines_printed(network, "not ready: database unavailable") == 1, "the terminal is silent")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: causes(network) == [], "it is not ready again")
    wait_until(lambda: lines_printed(network, "The gateway is ready again.") == 1, "the terminal is silent")


def test_on_a_full_disk_whole_answers_are_booked_whole_even_after_kill_9(network: Network) -> None:
    wait_until(lambda: causes(network) == [], "it is not ready")
    recovered = lines_printed(network, "The gateway is ready again.")
    answers: list[Answer] = []
    with postings_held_up(network), ThreadPoolExecutor(STREAMS) as pool:
        asked = [pool.submit(long_chat, network, f"tell me about {number}") for number in range(STREAMS)]
        wait_until(lambda: running_jobs(network) == STREAMS, "some stream did not begin")
        fill(network.data)
        wait_until(lambda: causes(network) == ["disk_full"], "it does not say that its disk is full")
        refused = chat(network, "no room for this")
        assert (refused.status, refused.error()["code"]) == (503, "disk_full")
        assert "retry-after" in refused.headers
        assert str(network.data) not in readiness_text(network), "a path of this machine is nobody's business"
        answers = [each.result(60) for each in asked]
        assert [(each.done, each.error) for each in answers] == [(True, None)] * STREAMS
        kill_gateway(network)
    wait_until(lambda: lines_printed(network, "not ready: disk full") == 1, "the terminal does not say it once")
    assert str(network.data) in network.output.read_text()
    empty(network.data)
    wait_until(lambda: causes(network) == [], "it does not go on by itself", ceiling_s=60)
    for answer in answers:
        assert answer.usage is not None
        job = booked(network, answer.headers["x-sparewatt-match-id"])
        assert job["completion_tokens"] == answer.usage["completion_tokens"] == TOKENS
    assert inspect(network).charged_twice() == []
    assert ask(network, "GET", "/v1/ledger/audit").json()["in_order"] is True
    wait_until(lambda: chat(network, "after").status == 200, "it takes no requests", ceiling_s=60)
    wait_until(lambda: lines_printed(network, "The gateway is ready again.") == recovered + 1, tail(network.output))


def test_a_database_that_stopped_because_the_disk_is_full_is_a_full_disk(network: Network) -> None:
    """It only refuses connections then: that it is away would be half of the truth."""
    wait_until(lambda: causes(network) == [], "it is not ready", ceiling_s=60)
    fill(network.data)
    try:
        for pid in processes_named(network, "postgres"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: "The disk is full: PostgreSQL" in network.output.read_text(), "the terminal is silent")
        wait_until(lambda: causes(network) == ["disk_full"], "it does not name the cause")
        refused = ask(network, "POST", "/v1/keys", {"name": "no room"})
        assert (refused.status, refused.error()["code"]) == (503, "disk_full")
        assert "still work" not in refused.error()["message"]
    finally:
        empty(network.data)
    wait_until(lambda: causes(network) == [], "it does not go on by itself", ceiling_s=60)
    assert lines_printed(network, "The disk is full: PostgreSQL") == 1
    wait_until(lambda: chat(network, "after").status == 200, "it takes no requests")
    assert ask(network, "GET", "/v1/ledger/audit").json()["in_order"] is True


def long_chat(network: Network, prompt: str) -> Answer:
    usage = {"include_usage": True}
    return stream_chat(network, prompt, max_tokens=TOKENS, ignore_eos=True, stream_options=usage)


def running_jobs(network: Network) -> int:
    return int(ask(network, "GET", "/v1/network").json()["totals"]["jobs"])


def readiness_text(network: Network) -> str:
    reply = readiness(network)
    return "" if reply is None else reply.body.decode()


def kill_gateway(network: Network) -> None:
    killed = {each for each in network.descendants() if each[0] in processes_named(network, "gateway run")}
    assert killed
    kill_all(killed)
