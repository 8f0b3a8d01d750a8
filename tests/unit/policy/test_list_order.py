from __future__ import annotations

from typing import Any

import pytest

from sparewatt.policy.list_order import sort_key
from sparewatt.policy.parser import read_line
from sparewatt.policy.zones import ZONE_ID, zone_of_country
from tests.unit.policy.examples import a_node


def test_nodes_are_sorted_by_order_then_preferences_then_sort() -> None:
    cheap, named = a_node(prompt_nano=0), a_node(names=frozenset({"vip"}))
    near = a_node(place="FR", zone=zone_of_country("FR"))
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
        ("near=EU", {"zone": ZONE_ID["europe-west"]}, {"zone": ZONE_ID["us-east"]}),
        ("near=EU", {"zone": ZONE_ID["us-east"]}, {"zone": ZONE_ID["oceania"]}),
        ("near=EU", {"zone": ZONE_ID["japan-korea"]}, {"zone": 0}),
    ],
)
def test_a_preference_lists_nodes_that_meet_it_first(line: str, better: dict[str, Any], worse: dict[str, Any]) -> None:
    policy = read_line(line)
    assert sort_key(policy, [a_node(**better)]) < sort_key(policy, [a_node(**worse)])
