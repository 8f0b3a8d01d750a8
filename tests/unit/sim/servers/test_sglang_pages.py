from __future__ import annotations

import msgspec
import pytest

from sparewatt.node.backends.prometheus_page import PrometheusPage
from sparewatt.sim.servers.facts import ServerLoad
from sparewatt.sim.servers.sglang_pages import GIB, live_pages, static_pages
from tests.unit.sim.servers.conftest import make_facts


def test_the_server_tells_its_limits_and_its_memory() -> None:
    facts = make_facts("sglang")
    info = msgspec.json.decode(static_pages(facts)["/server_info"])
    (state,) = info["internal_states"]

    assert info["max_total_num_tokens"] == state["memory_usage"]["token_capacity"] == facts.kv_tokens
    assert state["effective_max_running_requests_per_dp"] == facts.slots
    assert state["memory_usage"]["weight"] * GIB == pytest.approx(facts.weights_bytes, rel=1e-3)
    assert state["memory_usage"]["kvcache"] * GIB / facts.kv_tokens == pytest.approx(facts.kv_bytes_per_token, rel=1e-3)


def test_what_the_owner_did_not_set_is_null() -> None:
    info = msgspec.json.decode(static_pages(make_facts("sglang"))["/server_info"])

    assert info["max_running_requests"] is info["context_length"] is info["max_total_tokens"] is None


def test_no_input_is_longer_than_context_and_cache_allow() -> None:
    roomy, tight = (
        msgspec.json.decode(static_pages(make_facts("sglang", kv_tokens=tokens))["/server_info"])
        for tokens in (100_000, 4_000)
    )

    assert roomy["max_req_input_len"] < 16_384
    assert tight["max_req_input_len"] < 4_000


def test_older_paths_give_the_same_answers() -> None:
    pages = static_pages(make_facts("sglang"))

    assert pages["/get_server_info"] == pages["/server_info"]
    assert pages["/get_model_info"] == pages["/model_info"]


@pytest.mark.parametrize(("tools", "parser"), [(True, "llama"), (False, None)])
def test_tools_need_a_parser(*, tools: bool, parser: str | None) -> None:
    info = msgspec.json.decode(static_pages(make_facts("sglang", tools=tools))["/server_info"])

    assert info["tool_call_parser"] == parser


def test_used_tokens_follow_from_the_share() -> None:
    page = PrometheusPage(live_pages(make_facts("sglang"), ServerLoad(kv_used_share=0.5))["/metrics"])

    assert page.total("sglang:num_used_tokens") == 20_000
    assert page.share("sglang:token_usage") == 0.5
