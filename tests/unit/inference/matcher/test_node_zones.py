from __future__ import annotations

import pytest

from sparewatt.inference.matcher.node_zones import LATEST_MS, NodeZones, believed_zone
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.zones import DISTANCE_MS, UNKNOWN_ZONE, ZONE_ID
from tests.unit.inference.nodes import NOW_S, node_id, some_specs

EUROPE, JAPAN, US_EAST = ZONE_ID["europe-west"], ZONE_ID["japan-korea"], ZONE_ID["us-east"]


@pytest.mark.parametrize(
    ("claimed", "rtt_ms", "believed"),
    [
        (EUROPE, 0.0, EUROPE),  # not measured yet
        (EUROPE, 2.0, EUROPE),
        (EUROPE, 15 + LATEST_MS - 1, EUROPE),
        (EUROPE, 220.0, UNKNOWN_ZONE),  # answers from Japan and says it is here
        (JAPAN, 215.0, JAPAN),
        (JAPAN, 12.0, UNKNOWN_ZONE),  # no answer from Japan takes 12 ms
        (UNKNOWN_ZONE, 2.0, UNKNOWN_ZONE),
    ],
)
def test_a_round_trip_refutes_a_false_claim(claimed: int, rtt_ms: float, believed: int) -> None:
    assert believed_zone(claimed, rtt_s=rtt_ms / 1000, gateway_zone=EUROPE) == believed


def test_without_a_zone_of_its_own_a_gateway_believes_the_claim() -> None:
    assert believed_zone(JAPAN, rtt_s=0.001, gateway_zone=UNKNOWN_ZONE) == JAPAN


@pytest.mark.parametrize("gateway", ZONE_ID.values())
@pytest.mark.parametrize("zone", ZONE_ID.values())
def test_an_honest_node_is_believed_at_the_usual_distance(gateway: int, zone: int) -> None:
    usual_s = DISTANCE_MS[gateway][zone] / 1000
    assert believed_zone(zone, rtt_s=usual_s, gateway_zone=gateway) == zone


def test_a_table_keeps_zones_up_to_date() -> None:
    table = NodeTable(zones=NodeZones(gateway_zone=EUROPE))
    for number, region in enumerate(("DE", "JP", "EU", "local"), start=1):
        assert table.connect(node_id(number), some_specs(region=region), now_s=NOW_S)
    assert table.zones.by_index[:4].tolist() == [EUROPE, JAPAN, UNKNOWN_ZONE, UNKNOWN_ZONE]
    table.set_rtt(node_id(2), 0.012, now_s=NOW_S)
    assert table.zones.by_index[1] == UNKNOWN_ZONE
    table.set_specs(node_id(2), some_specs(region="FR"))
    assert table.zones.by_index[1] == EUROPE


def test_it_grows_with_the_table() -> None:
    table = NodeTable()
    for number in range(1, 301):
        table.connect(node_id(number), some_specs(region="us-east" if number % 2 else "JP"), now_s=NOW_S)
    assert table.zones.by_index[:300].tolist() == [US_EAST, JAPAN] * 150
