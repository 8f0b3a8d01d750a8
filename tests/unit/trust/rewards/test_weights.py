"""What a node weighs: each factor on its own."""

from __future__ import annotations

from msgspec.structs import replace

from sparewatt.trust.rewards.rule import DAY_S, DEFAULT_RULE, PPM, UNIT
from sparewatt.trust.rewards.weights import (
    availability_ppm,
    claimed_units,
    quality_ppm,
    ramp_ppm,
    weigh_node,
    worked_units,
)
from tests.unit.trust.rewards.eras import a_node

RULE = DEFAULT_RULE


def test_a_claim_is_cards_by_class_and_an_unknown_card_is_none() -> None:
    assert claimed_units(a_node(gpu_class="h100", gpu_units=8), RULE) == 96 * UNIT
    assert claimed_units(a_node(gpu_class="unheard-of"), RULE) == claimed_units(a_node(gpu_class=""), RULE)
    assert claimed_units(a_node(gpu_class="", gpu_units=0), RULE) == 50_000


def test_work_is_measured_against_the_length_of_the_era() -> None:
    node = a_node(payers_micro=[1_000])
    assert worked_units(node, RULE, span_s=DAY_S) == 1_000
    assert worked_units(node, RULE, span_s=DAY_S // 100) == 100_000


def test_a_node_that_nobody_observed_was_not_available() -> None:
    assert availability_ppm(a_node(known_s=0)) == 0
    assert availability_ppm(a_node(up_s=50, known_s=100)) == PPM // 2
    assert availability_ppm(a_node(up_s=101, known_s=100)) == PPM


def test_a_newcomer_ramps_up_over_two_weeks() -> None:
    assert [ramp_ppm(a_node(days=days), RULE) for days in (0, 7, 14, 15)] == [0, PPM // 2, PPM, PPM]


def test_a_failed_check_outweighs_many_that_were_passed() -> None:
    assert quality_ppm(a_node(), RULE) == PPM
    assert quality_ppm(a_node(checks_passed=19, checks_failed=1), RULE) == PPM // 2
    assert quality_ppm(a_node(done=99, failed=100), RULE) == PPM // 2


def test_a_weight_is_the_product_of_its_factors() -> None:
    node = a_node(days=7, up_s=DAY_S * 95 // 100, tier="verified", payers_micro=[250_000] * 4)
    weight = weigh_node(node, RULE, span_s=DAY_S)
    assert weight.weight == UNIT * 125 * 95 // 2 // 10_000
    assert (weight.uptime_weight, weight.quality_weight) == (0, weight.weight)


def test_the_cap_is_the_rules_share_of_the_fees() -> None:
    node = a_node(checks_passed=0, payers_micro=[1_000_000] * 4)
    assert weigh_node(node, RULE, span_s=DAY_S).most_micro == 200_000
    assert weigh_node(node, replace(RULE, cap_ppm=PPM // 2), span_s=DAY_S).most_micro == 100_000
