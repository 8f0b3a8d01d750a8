from __future__ import annotations

from typing import Any

import pytest

from sparewatt.policy.check import FACT_OF, NodeFacts, compile_policy
from sparewatt.policy.formatter import explain_relaxation, to_line, to_object
from sparewatt.policy.list_order import sort_key
from sparewatt.policy.model import ANY
from sparewatt.policy.parser import read_line
from sparewatt.policy.relaxation import check_node, funnel, relaxations
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


# a network of three


NODES = [[a_node()], [a_node(place="US", completion_nano=340_000_000)], [a_node(uptime=None), a_node(warm=False)]]


def test_a_node_may_serve_with_any_of_its_models_and_else_its_best_model_is_the_reason() -> None:
    policy = read_line("uptime>=0.99 warm=require")
    assert check_node(policy, [a_node(uptime=None), a_node()]) is None
    assert check_node(policy, [a_node(uptime=None), a_node(warm=False)]) == "warm"


def test_the_funnel_counts_in_the_order_of_the_vocabulary() -> None:
    steps = funnel(read_line("warm=require region=EU uptime>=0.5"), NODES)
    assert [(step.field, step.dropped, step.left) for step in steps] == [
        ("region", 1, 2),
        ("uptime", 0, 2),
        ("warm", 1, 1),
    ]
    assert [step.field for step in steps] == [name for name in FACT_OF if name in {"region", "uptime", "warm"}]


@pytest.mark.parametrize(
    ("line", "nodes", "sentences"),
    [
        (
            "max_price=0.3",
            [[a_node(completion_nano=340_000_000)]] * 3,
            ["max_price 0.3→0.34 adds 3 nodes"],
        ),
        (
            "max_price.completion=0.30",
            [[a_node(completion_nano=340_000_000)]],
            ["max_price completion=0.3→completion=0.34 adds 1 node"],
        ),
        (
            "region=EU",
            [[a_node(place="US")], [a_node(place="US")], [a_node(place="CH")]],
            ["region EU→EU,US adds 2 nodes"],
        ),
        ("uptime>=0.99", [[a_node(uptime=0.98)], [a_node(uptime=0.5)]], ["uptime >=0.99→>=0.98 adds 1 node"]),
        ("uptime>=0.99", [[a_node(uptime=None)]], ["without uptime adds 1 node"]),
        ("gpu_class>=h100", [[a_node()]], ["gpu_class >=h100→>=a100 adds 1 node"]),
        ("gpu_count=4", [[a_node()]], ["gpu_count >=4 <=4→>=1 <=4 adds 1 node"]),
        ("gpu=h100", [[a_node()]], ["gpu h100→a100,h100 adds 1 node"]),
        ("gpu!=a100", [[a_node()]], ["without gpu adds 1 node"]),
        ("min_throughput=100", [[a_node()]], ["min_throughput 100→80 adds 1 node"]),
        ("max_ttft_ms=100", [[a_node()]], ["max_ttft_ms 100→200 adds 1 node"]),
        ("max_hourly=1", [[a_node()]], ["max_hourly 1→1.2 adds 1 node"]),
        ("ignore=attic", [[a_node()]], ["without ignore adds 1 node"]),
        ("region=US warm=require", [[a_node(warm=False)]], ["without region and warm adds 1 node"]),
        ("region=US warm=require", [[a_node(warm=False)], [a_node()]], ["region US→DE,US adds 1 node"]),
        ("region=EU", [[a_node()]], []),
        ("region=EU", [], []),
    ],
)
def test_the_nearest_relaxation_is_explained(line: str, nodes: Any, sentences: list[str]) -> None:
    assert [explain_relaxation(found) for found in relaxations(read_line(line), nodes)] == sentences


# order


def test_nodes_are_sorted_by_order_then_preferences_then_sort() -> None:
    cheap, near, named = a_node(prompt_nano=0), a_node(place="FR"), a_node(names=frozenset({"vip"}))
    unknown = a_node(prompt_nano=None)
    policy = read_line("order=vip near=FR sort=price")
    ranked = sorted([[unknown], [cheap], [near], [named]], key=lambda models: sort_key(policy, models))
    assert ranked == [[named], [near], [cheap], [unknown]]


@pytest.mark.parametrize(
    ("line", "better", "worse"),
    [
        ("sort=latency", {"ttft_ms": 1.0}, {"ttft_ms": None}),
        ("sort=throughput", {"throughput_tps": 9.0}, {"throughput_tps": 8.0}),
        ("sort=throughput", {"throughput_tps": 9.0}, {"throughput_tps": None}),
        ("warm=prefer", {"warm": True}, {"warm": False}),
        ("near=EU", {"place": "DE"}, {"place": "US"}),
    ],
)
def test_a_preference_lists_nodes_that_meet_it_first(line: str, better: dict[str, Any], worse: dict[str, Any]) -> None:
    policy = read_line(line)
    assert sort_key(policy, [a_node(**better)]) < sort_key(policy, [a_node(**worse)])


# text


def test_an_empty_policy_is_an_empty_line_and_amounts_are_exact_strings() -> None:
    assert to_line(ANY) == ""
    assert to_object(read_line("max_price=0.30")) == {"max_price": "0.3"}


def test_a_region_is_written_in_the_fewest_words() -> None:
    assert to_line(read_line("region=EEA,EU,DE,US")) == "region=EEA,US"
    assert to_line(read_line("region!=CN,US")) == "region!=CN,US"
