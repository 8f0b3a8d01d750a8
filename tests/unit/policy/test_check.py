from __future__ import annotations

from typing import Any

import pytest

from sparewatt.policy.check import NodeFacts, compile_policy
from sparewatt.policy.parser import read_line
from tests.unit.policy.examples import GOOD, UNKNOWN, a_node


def mismatch(line: str, facts: NodeFacts) -> str | None:
    return compile_policy(read_line(line)).first_mismatch(facts)


ALLOWED_AND_NOT = [
    ("only", "only=Attic", "only=cellar"),
    ("only", "only=acct_1", "only=acct_2"),
    ("ignore", "ignore=cellar", "ignore=0xA1"),
    ("region", "region=EU", "region=NA"),
    ("region", "region!=US", "region!=EEA"),
    ("gpu", "gpu=A100", "gpu!=a100"),
    ("gpu_class", "gpu_class>=a100", "gpu_class>a100"),
    ("vram_gb", "vram_gb>=80", "vram_gb<80"),
    ("gpu_count", "gpu_count=1", "gpu_count>=2"),
    ("uptime", "uptime>=0.99", "uptime>0.995"),
    ("reputation", "reputation>=0.9", "reputation>=0.91"),
    ("compliance", "compliance=gdpr", "compliance=gdpr,soc2"),
    ("attested_by", "attested_by=auditor,other", "attested_by=other"),
    ("tier", "tier>=verified", "tier=datacenter"),
    ("quantizations", "quantizations=fp8,bf16", "quantizations=bf16"),
    ("max_hourly", "max_hourly=1.2", "max_hourly=1.199999999"),
    ("max_price", "max_price=0.3", "max_price=0.299999999"),
    ("max_price", "max_price.prompt=0.1", "max_price.prompt=0.05"),
    ("min_throughput", "min_throughput=80", "min_throughput=81"),
    ("max_ttft_ms", "max_ttft_ms=200", "max_ttft_ms=199"),
]


@pytest.mark.parametrize(("field", "allowed", "refused"), ALLOWED_AND_NOT)
def test_a_field_admits_a_node_that_satisfies_it_and_is_the_reason_if_not(
    field: str, allowed: str, refused: str
) -> None:
    assert mismatch(allowed, GOOD) is None
    assert mismatch(refused, GOOD) == field


@pytest.mark.parametrize(
    ("line", "change"),
    [("data_policy=no_log", {"data_policy": "may_log"}), ("warm=require", {"warm": False})],
)
def test_a_strict_word_is_a_filter_and_the_weaker_words_are_not(line: str, change: dict[str, Any]) -> None:
    assert mismatch(line, GOOD) is None
    assert mismatch(line, a_node(**change)) is not None
    weaker = {"data_policy=no_log": "data_policy=may_log", "warm=require": "warm=prefer"}[line]
    assert mismatch(weaker, a_node(**change)) is None


@pytest.mark.parametrize(
    "line",
    [allowed for field, allowed, _ in ALLOWED_AND_NOT if field != "ignore"]
    + ["uptime<=0.5", "vram_gb<=1000", "data_policy=no_log", "warm=require"],
)
def test_an_unknown_fact_satisfies_no_bound(line: str) -> None:
    assert mismatch(line, UNKNOWN) is not None


def test_an_empty_policy_allows_every_node() -> None:
    assert mismatch("", UNKNOWN) is None


def test_an_unknown_price_is_not_a_low_one() -> None:
    assert mismatch("max_price.prompt=1", a_node(prompt_nano=None)) is not None
    assert mismatch("max_price.prompt=1", a_node(completion_nano=None)) is None


def test_fields_can_be_left_out() -> None:
    policy, live = read_line("warm=require max_ttft_ms=1 region=EU"), frozenset({"max_ttft_ms", "warm"})
    assert compile_policy(policy).first_mismatch(a_node(warm=False)) is not None
    assert compile_policy(policy, without=live).first_mismatch(a_node(warm=False)) is None
    assert compile_policy(policy, without=live).first_mismatch(a_node(place="US")) == "region"


def test_a_policy_is_compiled_once() -> None:
    assert compile_policy(read_line("region=EU uptime>=0.5")) is compile_policy(read_line("uptime>=0.5 region=EU"))
