"""Metrics of model servers are read from their Prometheus pages, within the bounds of a report."""

from __future__ import annotations

import pytest

from sparewatt.node.backends.backend import BackendLoad, BackendTotals
from sparewatt.node.backends.prometheus_page import TOTAL_MAX, PrometheusPage, totals_of
from sparewatt.node.specs.specs_builder import server_metrics
from sparewatt.protocol.link.node_report import COUNT_MAX, NodeLoad, validated

PAGE = b"""# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="a"} 1000.0
vllm:prompt_tokens_total{engine="1",model_name="a"} 500.0
vllm:generation_tokens_total{engine="0",model_name="a"} 70.0
vllm:time_to_first_token_seconds_bucket{le="0.1"} 3
vllm:time_to_first_token_seconds_sum{model_name="a"} 1.25
vllm:time_to_first_token_seconds_count{model_name="a"} 5
vllm:e2e_request_latency_seconds_sum{model_name="a"} 12.5
vllm:e2e_request_latency_seconds_count{model_name="a"} 5
"""


def test_metrics_of_several_engines_are_summed() -> None:
    assert totals_of(PrometheusPage(PAGE), "vllm") == BackendTotals(1500.0, 70.0, 1.25, 5.0, 12.5, 5.0)


def test_metrics_that_a_server_does_not_report_are_unknown() -> None:
    assert totals_of(PrometheusPage(PAGE), "sglang") == BackendTotals()


@pytest.mark.parametrize(("value", "expected"), [(b"-5", 0.0), (b"1e300", TOTAL_MAX), (b"NaN", None), (b"+Inf", None)])
def test_an_absurd_count_does_not_cost_the_node_its_link(value: bytes, expected: float | None) -> None:
    found = totals_of(PrometheusPage(b"vllm:prompt_tokens_total " + value), "vllm").prompt_tokens
    assert found == expected
    load = BackendLoad(10**9, queued=10**9, totals=BackendTotals(prompt_tokens=found))
    report = validated(NodeLoad(server=server_metrics(load)))
    assert report.server is not None
    assert (report.server.running, report.server.waiting) == (COUNT_MAX, COUNT_MAX)
