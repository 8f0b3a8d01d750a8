from __future__ import annotations

import asyncio

import pytest

from sparewatt.node.backends.backend import BadBackendReply
from sparewatt.sim.servers.adapter import PageClient, answer_now, paged_adapter
from sparewatt.sim.servers.facts import ServerLoad
from sparewatt.sim.servers.pages import server_pages
from tests.unit.sim.servers.conftest import make_facts


def test_a_path_without_a_page_is_not_found() -> None:
    client = PageClient(lambda: {"/here": b"{}"})

    assert answer_now(client.fetch("/here")) == b"{}"
    assert answer_now(client.status_of("/here")) == 200
    assert answer_now(client.status_of("/there")) == 404
    with pytest.raises(BadBackendReply, match="404"):
        answer_now(client.fetch("/there"))


def test_an_adapter_reads_the_pages_of_the_moment() -> None:
    facts, load = make_facts("vllm"), ServerLoad(running=1)
    adapter = paged_adapter("vllm", lambda: server_pages(facts, load))
    before = answer_now(adapter.load())
    load = ServerLoad(running=5)
    after = answer_now(adapter.load())

    assert before is not None
    assert after is not None
    assert (before.running, after.running) == (1, 5)


def test_two_adapters_of_one_kind_do_not_share_their_pages() -> None:
    few = server_pages(make_facts("llama.cpp", slots=2), ServerLoad())
    many = server_pages(make_facts("llama.cpp", slots=9), ServerLoad())
    one, other = paged_adapter("llama.cpp", lambda: few), paged_adapter("llama.cpp", lambda: many)

    assert (answer_now(one.slots()), answer_now(other.slots())) == (2, 9)


def test_a_question_that_waits_is_refused() -> None:
    with pytest.raises(RuntimeError, match="waited for"):
        answer_now(asyncio.sleep(0))
