from __future__ import annotations

import msgspec

from sparewatt.node.backends.prometheus_page import PrometheusPage
from sparewatt.sim.servers.facts import ServerLoad, ServerTotals, SlotLoad
from sparewatt.sim.servers.llama_cpp_pages import live_pages, static_pages
from tests.unit.sim.servers.conftest import make_facts

FACTS = make_facts("llama.cpp", slots=3)
READING = SlotLoad(prompt_tokens=900, read_tokens=512, cached_tokens=16, written_tokens=0)


def test_without_details_the_first_slots_are_busy() -> None:
    slots = msgspec.json.decode(live_pages(FACTS, ServerLoad(running=2))["/slots"])

    assert [slot["is_processing"] for slot in slots] == [True, True, False]
    assert {slot["n_ctx"] for slot in slots} == {FACTS.context_length}


def test_a_slot_tells_how_far_its_request_is() -> None:
    slots = msgspec.json.decode(live_pages(FACTS, ServerLoad(running=1, slots=(None, READING)))["/slots"])

    assert [slot["is_processing"] for slot in slots] == [False, True, False]
    assert slots[1]["n_prompt_tokens"] == 900
    assert (slots[1]["n_prompt_tokens_processed"], slots[1]["n_prompt_tokens_cache"]) == (512, 16)
    assert "n_prompt_tokens" not in slots[0]


def test_the_model_list_has_weights_parameters_and_both_contexts() -> None:
    (card,) = msgspec.json.decode(static_pages(FACTS)["/v1/models"])["data"]

    assert card["meta"]["size"] == FACTS.weights_bytes
    assert card["meta"]["n_params"] == FACTS.parameters
    assert (card["meta"]["n_ctx"], card["meta"]["n_ctx_train"]) == (FACTS.context_length, FACTS.shape.context_length)


def test_averages_are_zero_before_the_first_request() -> None:
    page = PrometheusPage(live_pages(FACTS, ServerLoad())["/metrics"])

    assert page.total("llamacpp:prompt_tokens_seconds") == 0
    assert page.total("llamacpp:n_busy_slots_per_decode") == 0


def test_averages_are_over_all_requests() -> None:
    totals = ServerTotals(
        prompt_tokens=1000, prompt_s=0.5, generation_tokens=90, decode_s=3.0, iterations=50, busy_slots=100
    )
    page = PrometheusPage(live_pages(FACTS, ServerLoad(totals=totals))["/metrics"])

    assert page.total("llamacpp:prompt_tokens_seconds") == 2000
    assert page.total("llamacpp:predicted_tokens_seconds") == 30
    assert page.total("llamacpp:n_busy_slots_per_decode") == 2
