from __future__ import annotations

from typing import Any

import pytest

from sparewatt.policy.check import FACT_OF
from sparewatt.policy.formatter import explain_relaxation
from sparewatt.policy.parser import read_line
from sparewatt.policy.relaxation import check_node, funnel, relaxations
from tests.unit.policy.examples import a_node

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
