"""A gateway of two processes on one port: nobody can tell, not even while one of them is killed."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import ask, chat_body
from tests.integration.doors import Door, NoWayIn, doors_to, processes_of
from tests.integration.networks import Network, start_network, wait_until
from tests.integration.people import sign_up

REVOKED_WITHIN_S = 2.0
SLACK_S = 1.0
"""For a machine that has other things to do."""
STREAMS = 3
"""At each process; together no more than the nodes have slots for."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    env = {
        "SPAREWATT_GATEWAY_SIGNUPS_PER_ADDRESS_HOUR": "10000",
        "SPAREWATT_GATEWAY_SIGNUP_CREDIT_USD": "0.001",
        "SPAREWATT_GATEWAY_HEARTBEAT_S": "1",
    }
    flags = ("--engine=deterministic", "--nodes=2", "--processes=2")
    with start_network(tmp_path_factory.mktemp("processes"), *flags, env=env, ready_s=120, server=server) as network:
        wait_until(lambda: all_serve(network), "nodes have no link to some process")
        yield network


@pytest.fixture
def doors(network: Network) -> Iterator[list[Door]]:
    """One to each process."""
    with doors_to(network) as doors:
        yield doors


def all_serve(network: Network) -> bool:
    try:
        with doors_to(network) as doors:
            return [door.ask("GET", "/readyz").json().get("nodes_serving") for door in doors] == [2, 2]
    except NoWayIn:
        return False


def chat(door: Door, prompt: str, *, key: str | None = None, name: str | None = None, max_tokens: int = 4) -> str:
    """Its match."""
    body = chat_body(door.network, prompt, max_tokens=max_tokens)
    reply = door.ask("POST", "/v1/chat/completions", body, key=key, name=name)
    assert reply.status == 200, reply.body
    return reply.headers["x-sparewatt-match-id"]


def test_what_one_process_did_every_process_can_show(network: Network, doors: list[Door]) -> None:
    made = [chat(door, f"say {number}") for number, door in enumerate(doors)]
    for door in doors:
        assert [door.ask("GET", f"/v1/matches/{match}").status for match in made] == [200, 200]
        listed = door.ask("GET", "/v1/matches").json()["data"]
        assert [each["match_id"] for each in listed[:2]] == made[::-1]
        nodes = door.ask("GET", "/v1/nodes").json()["data"]
        assert sum(node["jobs_done"] for node in nodes) == len(made)
        assert door.ask("GET", f"/v1/nodes/{nodes[0]['id']}/why").json()["matches"] == len(made)
    assert ask(network, "GET", "/v1/network").json()["totals"]["nodes"]["online"] == 2


def test_a_key_works_everywhere_at_once_and_a_revoked_one_nowhere(doors: list[Door]) -> None:
    made = doors[0].ask("POST", "/v1/keys", {"name": "leaked"}).json()
    assert [door.ask("GET", "/v1/models", key=made["key"]).status for door in doors] == [200, 200]
    doors[0].ask("DELETE", f"/v1/keys/{made['id']}")
    began_s = time.monotonic()
    wait_until(
        lambda: [door.ask("GET", "/v1/models", key=made["key"]).status for door in doors] == [401, 401],
        "some process still takes it",
    )
    assert time.monotonic() - began_s < REVOKED_WITHIN_S + SLACK_S


def test_a_limit_is_one_for_all_processes(doors: list[Door]) -> None:
    key = doors[0].ask("POST", "/v1/keys", {"name": "slow", "requests_per_min": 10}).json()["key"]
    replies = [door.ask("GET", "/v1/models", key=key) for _ in range(10) for door in doors]
    passed = [reply for reply in replies if reply.status == 200]
    assert {reply.status for reply in replies} == {200, 429}
    assert 10 <= len(passed) <= 13, "ten, and what came in while this ran"
    assert {reply.headers["x-ratelimit-limit-requests"] for reply in passed} == {"10"}


def test_a_request_that_is_sent_again_runs_once_wherever_it_lands(doors: list[Door]) -> None:
    names = [secrets.token_hex(8) for _ in range(4)]  # kept by either process, as their hashes fall
    matches = [{chat(door, "only once", name=name) for door in (*doors, *doors)} for name in names]
    assert [len(each) for each in matches] == [1] * len(names)


def test_a_conversation_goes_on_at_another_process(doors: list[Door]) -> None:
    """By the id of the response before, and by a reference to its answer; each turn at the other process."""
    previous: dict[str, object] = {}
    for turn in range(4):
        asked = {"model": doors[0].network.model, "input": f"turn {turn}", "max_output_tokens": 4, **previous}
        reply = doors[turn % 2].ask("POST", "/v1/responses", asked)
        assert reply.status == 200, reply.body
        previous = {"previous_response_id": reply.json()["id"]}
        reference = {"type": "item_reference", "id": reply.json()["output"][0]["id"]}
        asked = {"model": doors[0].network.model, "input": [reference, {"role": "user", "content": "and?"}]}
        referred = doors[1 - turn % 2].ask("POST", "/v1/responses", asked | {"max_output_tokens": 4})
        assert referred.status == 200, referred.body


def test_a_small_balance_can_be_spent_at_any_process(network: Network, doors: list[Door]) -> None:
    """Each process sets a slice aside; what is left here may all be there."""
    person = sign_up(network, f"ann-{secrets.token_hex(6)}@example.org")
    for number in range(3):
        for door in doors:
            chat(door, f"penny {number}", key=person.key)


@dataclass(slots=True)
class Stream:
    """An answer that lasts longer than the test, and how it goes."""

    door: Door
    tokens: int = 0
    is_over: bool = False
    match_id: str = ""

    def read(self) -> None:
        asked = chat_body(self.door.network, f"long {id(self)}", stream=True, max_tokens=6000, ignore_eos=True)
        body = json.dumps(asked).encode()
        headers = {"authorization": f"Bearer {self.door.network.api_key}"}
        try:
            self.door.connection.request("POST", "/v1/chat/completions", body=body, headers=headers)
            reply = self.door.connection.getresponse()
            self.match_id = reply.headers["x-sparewatt-match-id"] or ""
            for line in reply:
                self.tokens += b'"content"' in line
        except (OSError, ValueError, http.client.HTTPException):
            return
        finally:
            self.is_over = True

    def leave(self) -> None:
        if self.door.connection.sock is not None:
            self.door.connection.sock.shutdown(socket.SHUT_RDWR)


def test_a_killed_process_takes_its_own_streams_with_it_and_no_others(network: Network) -> None:
    before = processes_of(network)
    with doors_to(network) as others, doors_to(network, each=STREAMS) as doors, ThreadPoolExecutor(len(doors)) as pool:
        streams = [Stream(door) for door in doors]
        reading = [pool.submit(stream.read) for stream in streams]
        try:
            wait_until(lambda: all(stream.tokens for stream in streams), "some stream did not begin")
            wait_until(lambda: jobs_told(others) == {len(streams)}, "a process tells of its own jobs alone")
            killed = doors[0].pid
            kill(killed)
            body = chat_body(network, "meanwhile", max_tokens=4)
            assert ask(network, "POST", "/v1/chat/completions", body).status == 200
            lost = [stream for stream in streams if stream.door.pid == killed]
            left = {id(stream): stream.tokens for stream in streams if stream not in lost}
            wait_until(lambda: all(stream.is_over for stream in lost), "a dead process answers")
            wait_until(
                lambda: all(stream.tokens > left.get(id(stream), -1) + 20 for stream in streams if stream not in lost),
                "an answer of the other process stands still",
            )
            assert [stream.is_over for stream in streams] == [stream in lost for stream in streams]
        finally:
            for stream in streams:
                stream.leave()
            for each in reading:
                each.result(60)
    wait_until(lambda: len(processes_of(network)) == len(before), "it was not started again", ceiling_s=60)
    wait_until(lambda: all_serve(network), "nodes did not come back", ceiling_s=60)
    with doors_to(network) as doors:
        for door in doors:
            chat(door, "again")
    wait_until(lambda: all(is_settled(network, stream) for stream in streams), "a job is in no book")
    assert ask(network, "GET", "/v1/ledger/audit").json()["in_order"] is True


def test_a_hung_process_is_said_and_replaced(network: Network) -> None:
    """A stopped process keeps its port open: without the parent it would swallow half of all connections for good."""
    wait_until(lambda: all_serve(network), "nodes have no link to some process", ceiling_s=60)
    before = processes_of(network)
    with doors_to(network) as doors:
        hung, other = doors[0], doors[1]
        match_id = chat(hung, "booked before it hangs")
        with parent_asleep(hung.pid):  # else it may be killed before anybody has looked
            os.kill(hung.pid, signal.SIGSTOP)
            wait_until(lambda: readiness_causes(other) == ["process_hung"], "the other process does not say it")
        wait_until(lambda: not Path(f"/proc/{hung.pid}").exists(), "it is not killed")
        wait_until(lambda: readiness_causes(other) == [], "what is gone still counts")
        chat(other, "meanwhile")
    assert "process_hung_and_killed" in (network.log_dir / "gateway.log").read_text()
    wait_until(lambda: len(processes_of(network) - {hung.pid}) == len(before), "it is not replaced", ceiling_s=60)
    wait_until(lambda: all_serve(network), "nodes did not come back", ceiling_s=60)
    wait_until(lambda: ask(network, "GET", f"/v1/generation?id={match_id}").status == 200, "its journal is not settled")
    assert ask(network, "GET", "/v1/ledger/audit").json()["in_order"] is True


@contextmanager
def parent_asleep(pid: int) -> Iterator[None]:
    """Stop the process that watches another one, for a while."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(parent, signal.SIGCONT)


def readiness_causes(door: Door) -> list[str]:
    return [cause["code"] for cause in door.ask("GET", "/readyz").json().get("causes", ())]


def kill(pid: int) -> None:
    """And wait until nothing of it is left, nor of the connections that it had not yet accepted."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "it is not dead")


def jobs_told(doors: list[Door]) -> set[int]:
    """How many jobs run, by each process."""
    return {door.ask("GET", "/v1/network").json()["totals"]["jobs"] for door in doors}


def is_settled(network: Network, stream: Stream) -> bool:
    """Also one whose process died: whoever starts next settles it."""
    return ask(network, "GET", f"/v1/generation?id={stream.match_id}").status == 200
