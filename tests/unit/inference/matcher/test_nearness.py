"""`near`: what a node's distance adds to its cost, and that nobody gains by saying nothing of where it is."""

from __future__ import annotations

import pytest

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher import match as matching
from sparewatt.inference.matcher.formula import BALANCED, EMPHASIS, NEURALGRID, PARTS, Preference, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import AllowedNodes, Candidate, Decision, MatchJob, Rejection
from sparewatt.inference.matcher.node_zones import NodeZones
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.zones import ZONE_ID, distances_from
from sparewatt.protocol.link.node_report import NodeLoad
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, a_table, node_id, situation, some_specs

NETWORK = PARTS.index("network")
REGIONS = ("DE", "us-east", "JP", "EU")
"""Of the nodes 1 to 4; the last names a group, which is no zone."""


def a_world(*regions: str, gateway_zone: int = 0) -> NodeTable:
    table = a_table(len(regions or REGIONS), zones=NodeZones(gateway_zone=gateway_zone))
    for number, region in enumerate(regions or REGIONS, start=1):
        table.set_specs(node_id(number), some_specs(region=region))
    return table


def decide(
    table: NodeTable, near: str | None, *, job: MatchJob | None = None, ranking: Ranking = BALANCED, **at: object
) -> Decision:
    return match(job or a_job(), table, situation(**at), ranking=ranking, seed=5, near=near, compiled=False)


def by_node(decision: Decision) -> dict[NodeId, Candidate]:
    return {candidate.node_id: candidate for candidate in decision.ranked}


@pytest.mark.parametrize(("near", "best"), [("FR", 1), ("CA", 2), ("KR", 3), ("AP", 3)])
def test_the_nearest_of_equal_nodes_wins(near: str, best: int) -> None:
    found = decide(a_world(), near).best
    assert found is not None
    assert found.node_id == node_id(best)


def test_the_distance_in_seconds_is_added_to_the_networks_part_and_to_nothing_else() -> None:
    plain, near = by_node(decide(a_world(), None)), by_node(decide(a_world(), "DE"))
    for number, zone in enumerate(("europe-west", "us-east", "japan-korea"), start=1):
        before, after = plain[node_id(number)], near[node_id(number)]
        distance_s = distances_from("DE")[ZONE_ID[zone]] / 1000
        assert after.cost - before.cost == pytest.approx(EMPHASIS * distance_s)
        assert after.parts[NETWORK] - before.parts[NETWORK] == pytest.approx(distance_s)
        assert after.parts[NETWORK + 1 :] == before.parts[NETWORK + 1 :]
        assert (after.predicted_ttft_s, after.price_nano) == (before.predicted_ttft_s, before.price_nano)


def test_a_queue_does_not_swallow_the_distance() -> None:
    table = a_world("DE", "JP")
    for number in (1, 2):
        table.set_load(node_id(number), NodeLoad(foreign=1, foreign_backlog_s=5.0), now_s=NOW_S)
    plain, near = by_node(decide(table, None)), by_node(decide(table, "DE"))
    assert near[node_id(2)].cost - plain[node_id(2)].cost == pytest.approx(EMPHASIS * 0.22)


@pytest.mark.parametrize("near", ["DE", "US", "JP", "AFRICA", "LATAM"])
@pytest.mark.parametrize("said", ["EU", "AP", "local", "", "DE US JP"])
def test_who_names_no_zone_or_many_is_behind_everybody(near: str, said: str) -> None:
    ranked = [candidate.node_id for candidate in decide(a_world("DE", "us-east", "BR", said), near).ranked]
    assert ranked[-1] == node_id(4)


def test_a_false_zone_does_not_help_where_the_round_trip_refutes_it() -> None:
    table = a_world("JP", "JP", "DE", gateway_zone=ZONE_ID["europe-west"])
    table.set_rtt(node_id(1), 0.010, now_s=NOW_S)  # next door, whatever it says
    table.set_rtt(node_id(2), 0.220, now_s=NOW_S)
    costs = {node: candidate.parts[NETWORK] for node, candidate in by_node(decide(table, "JP")).items()}
    assert costs[node_id(1)] == pytest.approx(0.010 + max(distances_from("JP")) / 1000)
    assert costs[node_id(2)] == pytest.approx(0.220 + 0.008)


def test_the_weight_of_the_network_counts_for_the_distance() -> None:
    job = a_job(preference=Preference(weights=(("network", 0.0),)))
    assert by_node(decide(a_world(), "DE", job=job)).keys() == by_node(decide(a_world(), None, job=job)).keys()
    plain, near = decide(a_world(), None, job=job), decide(a_world(), "JP", job=job)
    assert [c.node_id for c in near.ranked] == [c.node_id for c in plain.ranked]


def test_a_much_faster_node_far_away_still_wins() -> None:
    table = a_world("DE", "JP")
    table.set_load(node_id(1), NodeLoad(foreign=3, foreign_backlog_s=10.0), now_s=NOW_S)
    best = decide(table, "DE").best
    assert best is not None
    assert best.node_id == node_id(2)


def test_rejections_of_all_zones_are_counted() -> None:
    table = a_world("DE", "JP", "us-east")
    table.set_load(node_id(1), NodeLoad(draining=True), now_s=NOW_S)
    table.set_load(node_id(2), NodeLoad(draining=True), now_s=NOW_S)
    decision = decide(table, "DE", tried={node_id(3)})
    assert decision.rejected_by_reason == {Rejection.DRAINING: 2, Rejection.ALREADY_TRIED: 1}
    assert {rejected.node_id for rejected in decision.rejected} == {node_id(1), node_id(2), node_id(3)}
    assert decision.best is None


def test_only_allowed_nodes_are_ranked() -> None:
    allowed = AllowedNodes(frozenset({node_id(2), node_id(3)}))
    assert set(by_node(decide(a_world(), "DE", allowed=allowed))) == {node_id(2), node_id(3)}


def test_a_ranking_that_scores_ignores_it() -> None:
    plain, near = decide(a_world(), None, ranking=NEURALGRID), decide(a_world(), "JP", ranking=NEURALGRID)
    assert plain == near


def test_a_holder_of_the_prompt_pays_the_distance_as_well() -> None:
    table = a_world("DE", "JP")
    keeping = a_model(prefix_cache_tokens=100_000)
    table.set_specs(node_id(2), some_specs(keeping, region="JP"))
    held = {node_id(2): 400}
    plain, near = by_node(decide(table, None, prefix_tokens=held)), by_node(decide(table, "DE", prefix_tokens=held))
    assert near[node_id(2)].cost - plain[node_id(2)].cost == pytest.approx(EMPHASIS * 0.22)


def test_a_shortlist_is_completed_by_nodes_that_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sorted without the distance, and may have none of them."""
    monkeypatch.setattr(matching, "SCAN_MAX", 2)
    table = a_world(*["JP"] * 300, "DE")
    monkeypatch.setattr(matching, "shortlisted", lambda *_, **__: table.columns_of(MODEL).rows[:20])  # type: ignore[union-attr]
    best = decide(table, "DE").best
    assert best is not None
    assert best.node_id == node_id(301)


@pytest.mark.skipif(not kernel.ready(), reason="this platform has no compiled scan")
def test_compiled_or_not_the_decision_is_the_same() -> None:
    table = a_world(*(("DE", "us-west", "JP", "BR", "local")[number % 5] for number in range(200)))
    plain, compiled = (
        match(a_job(), table, situation(), ranking=BALANCED, seed=5, near="FR", compiled=each) for each in (False, True)
    )
    assert plain == compiled
