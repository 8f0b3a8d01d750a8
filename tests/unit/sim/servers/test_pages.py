"""What holds for every kind's pages: its own adapter recognises and reads them, and they keep their secrets."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.node.backends.discovery import ADAPTERS
from sparewatt.sim.servers.adapter import PageClient, answer_now, paged_adapter
from sparewatt.sim.servers.facts import ServerKind, ServerLoad, ServerTotals
from sparewatt.sim.servers.pages import live_pages, server_pages, static_pages
from tests.unit.sim.servers.conftest import make_facts

BUSY = ServerLoad(
    running=7,
    waiting=3,
    kv_used_share=0.25,
    totals=ServerTotals(
        prompt_tokens=5000, generation_tokens=900, first_token_s=12.5, first_tokens=40, request_s=80.0, requests=33
    ),
)


def test_the_first_adapter_that_recognises_the_pages_is_that_of_the_kind(kind: ServerKind) -> None:
    pages = server_pages(make_facts(kind), BUSY)
    client = PageClient(lambda: pages)

    recognised = [adapter.kind for adapter in ADAPTERS if answer_now(adapter.recognises(client))]

    assert recognised[:1] == [kind]


def test_the_model_is_read_by_its_name_and_with_its_context(kind: ServerKind) -> None:
    facts = make_facts(kind)

    (model,) = answer_now(paged_adapter(kind, lambda: server_pages(facts, BUSY)).models())

    assert (model.id, model.state, model.context_length) == (facts.model, "warm", facts.context_length)


@pytest.mark.parametrize("hidden", ["max_num_seqs", "weight", "kv_bytes", "n_params", "slots"])
def test_vllm_does_not_tell_its_limit_of_requests_nor_its_weights(hidden: str) -> None:
    text = b"".join(server_pages(make_facts("vllm"), BUSY).values()).decode()

    assert hidden not in text


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama.cpp"], indirect=True)
def test_running_and_waiting_requests_are_read_from_the_pages(kind: ServerKind) -> None:
    facts = make_facts(kind)

    load = answer_now(paged_adapter(kind, lambda: server_pages(facts, BUSY)).load())

    assert load is not None
    assert (load.running, load.queued) == (7, 3)
    assert load.totals.generation_tokens == 900


def test_ollama_tells_nothing_of_its_load() -> None:
    facts = make_facts("ollama", slots=4)

    assert live_pages(facts, BUSY) == live_pages(facts, ServerLoad())
    assert answer_now(paged_adapter("ollama", lambda: server_pages(facts, BUSY)).load()) is None


@pytest.mark.parametrize("kind", ["sglang", "llama.cpp"], indirect=True)
def test_there_is_no_metrics_page_unless_the_server_was_started_with_one(kind: ServerKind) -> None:
    assert "/metrics" in server_pages(make_facts(kind), BUSY)
    assert "/metrics" not in server_pages(make_facts(kind, has_metrics=False), BUSY)


def test_every_page_but_plain_text_is_json(kind: ServerKind) -> None:
    for path, page in server_pages(make_facts(kind), BUSY).items():
        if path not in ("/metrics", "/") and page:
            assert isinstance(msgspec.json.decode(page), dict | list)


def test_static_pages_do_not_depend_on_the_load(kind: ServerKind) -> None:
    facts = make_facts(kind)

    assert not static_pages(facts).keys() & live_pages(facts, BUSY).keys()
    assert server_pages(facts, BUSY) == static_pages(facts) | live_pages(facts, BUSY)
