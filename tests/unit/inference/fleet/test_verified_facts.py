"""Facts that are not the node's own word: what policies see of them."""

from __future__ import annotations

from sparewatt.core.ids import ModelId
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.matcher.node_row import VerifiedFacts
from sparewatt.inference.matcher.node_zones import NodeZones
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.parser import read_line
from sparewatt.policy.zones import zone_of_region
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs


def allowed(table: NodeTable, line: str) -> set[str]:
    gate = Eligibility(table, clock=ManualClock(now_s=NOW_S)).gate(read_line(line, at="test"), ModelId(MODEL))
    assert gate is not None
    return {node for stage in gate.stages() if stage is not None for node in stage.nodes if gate.admits(node)}


def a_table(*, region: str = "DE", zones: NodeZones | None = None) -> NodeTable:
    table = NodeTable(zones=zones)
    table.connect(node_id(1), some_specs(region=region, models=(a_model(),)), now_s=NOW_S)
    return table


def test_uptime_compliance_auditors_and_tier_admit_a_node_once_the_network_knows_them() -> None:
    table = a_table()
    lines = ("uptime>=0.99", "compliance=gdpr", "attested_by=operator", "tier>=verified")
    assert [allowed(table, line) for line in lines] == [set()] * 4
    row = table.get(node_id(1))
    assert row is not None
    row.set_verified(VerifiedFacts(0.995, frozenset({"gdpr"}), frozenset({"operator"}), "verified"))
    assert [allowed(table, line) for line in lines] == [{node_id(1)}] * 4
    assert allowed(table, "uptime>=0.999") == set()
    assert allowed(table, "tier=datacenter") == set()


def test_a_list_that_was_built_before_is_built_anew() -> None:
    table = a_table()
    clock = ManualClock(now_s=NOW_S)
    gate = Eligibility(table, clock=clock).gate(read_line("uptime>=0.9", at="test"), ModelId(MODEL))
    assert gate is not None
    assert not gate.admits(node_id(1))
    row = table.get(node_id(1))
    assert row is not None
    row.set_verified(VerifiedFacts(uptime=0.95))
    clock.advance(1.0)
    assert any(stage is not None and node_id(1) in stage.nodes for stage in gate.stages())


def test_a_region_that_the_round_trip_refutes_satisfies_no_policy() -> None:
    table = a_table(region="JP", zones=NodeZones(gateway_zone=zone_of_region("DE")))
    assert allowed(table, "region=JP") == {node_id(1)}
    table.set_rtt(node_id(1), 0.004, now_s=NOW_S)  # light needs longer to Japan
    assert allowed(table, "region=JP") == set()
