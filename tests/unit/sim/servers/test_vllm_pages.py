from __future__ import annotations

from sparewatt.node.backends.prometheus_page import PrometheusPage, totals_of
from sparewatt.sim.servers.facts import ServerLoad, ServerTotals
from sparewatt.sim.servers.vllm_pages import live_pages
from tests.unit.sim.servers.conftest import make_facts


def metrics(load: ServerLoad, **changes: object) -> PrometheusPage:
    return PrometheusPage(live_pages(make_facts("vllm", **changes), load)["/metrics"])


def test_the_kv_cache_is_told_in_whole_blocks() -> None:
    (config,) = metrics(ServerLoad(), kv_tokens=40_007).labels("vllm:cache_config_info")

    assert (config["num_gpu_blocks"], config["block_size"]) == ("2500", "16")
    assert config["kv_cache_size_tokens"] == "40000"
    assert float(config["kv_cache_max_concurrency"]) == 40_000 / 16_384


def test_prefix_caching_is_told_by_a_label() -> None:
    pages = [metrics(ServerLoad(), prefix_cache=has_it) for has_it in (True, False)]
    told = [labels["enable_prefix_caching"] for page in pages for labels in page.labels("vllm:cache_config_info")]

    assert told == ["True", "False"]


def test_cached_tokens_count_as_prompt_tokens() -> None:
    page = metrics(ServerLoad(totals=ServerTotals(prompt_tokens=100, cached_tokens=60)))

    assert page.total("vllm:prompt_tokens_total") == 160
    assert page.total("vllm:prefix_cache_hits_total") == 60


def test_sums_of_times_come_with_their_counts() -> None:
    totals = ServerTotals(first_token_s=1.5, first_tokens=3, request_s=9.0, requests=2)
    read = totals_of(metrics(ServerLoad(totals=totals)), "vllm")

    assert (read.first_token_s, read.first_tokens, read.request_s, read.requests) == (1.5, 3, 9.0, 2)


def test_a_model_name_with_a_quote_stays_one_label() -> None:
    page = metrics(ServerLoad(running=2), model='a"b')

    assert page.count("vllm:num_requests_running") == 2
