from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.leasing.relay.candidates import (
    FilterChange,
    asked_providers,
    claimed_profile,
    claimed_status,
    count_bondless,
    filter_counts,
    nearest_relaxations,
)
from sparewatt.policy.market_ids import COUNTRY_ID, GPU_CLASS_ID, GPU_MODEL_ID
from sparewatt.protocol.contracts.reasons import BidStatus
from tests.order_terms import order_terms
from tests.unit.leasing.relay.auction import NODE_KEYS, OPENED_AT, PROFILES, PROVIDERS, Auction, profile
from tests.unit.market.market_events import ZERO, an_event

STATE = Auction().state()


def test_an_order_is_for_active_providers_that_pass_its_filters_by_their_claims() -> None:
    auction = Auction()
    asked = asked_providers(STATE, auction.id_text)
    assert {node_key: each.provider for node_key, each in asked.items()} == {
        NODE_KEYS[provider].address: provider for provider in PROVIDERS[:2]
    }, "the third has too little memory"


@pytest.mark.parametrize("status", [1, 3, 4, 5])
def test_one_that_is_not_active_is_not_asked(status: int) -> None:
    auction = Auction()
    left = an_event("provider_registry.StatusChanged", provider=PROVIDERS[0], status=status, reason=ZERO)
    assert list(asked_providers(auction.state(left), auction.id_text)) == [NODE_KEYS[PROVIDERS[1]].address]


def test_one_that_failed_in_this_order_is_not_asked_again() -> None:
    auction = Auction()
    skipped = an_event(
        "deployment_order.CandidateSkipped", order_id=auction.id_text, provider=PROVIDERS[0], suspended=False
    )
    assert list(asked_providers(auction.state(skipped), auction.id_text)) == [NODE_KEYS[PROVIDERS[1]].address]


def test_one_without_a_bond_for_the_order_is_not_asked_and_cannot_read_it() -> None:
    """The cheapest spy: register for everything, bond nothing, and read each renter's image, command and variables."""
    auction = Auction()
    needed = auction.terms.max_price_uusd
    bond = {"provider": PROVIDERS[0], "locked": 10 * needed, "unbonding": 10 * needed}
    poor = auction.state(an_event("stake_registry.BondChanged", free=needed - 1, **bond))
    assert list(asked_providers(poor, auction.id_text)) == [NODE_KEYS[PROVIDERS[1]].address]
    assert count_bondless(poor, auction.id_text) == 1
    able = auction.state(an_event("stake_registry.BondChanged", free=needed, **bond))
    assert (len(asked_providers(able, auction.id_text)), count_bondless(able, auction.id_text)) == (2, 0)


def test_a_key_that_came_after_the_order_opened_does_not_count_for_it() -> None:
    auction, thief = Auction(), "0x" + "77" * 20
    changed = an_event("provider_registry.NodeKeyChanged", provider=PROVIDERS[0], node_key=thief)
    state = auction.state(replace(changed, unix_s=OPENED_AT))
    assert thief not in asked_providers(state, auction.id_text)
    assert NODE_KEYS[PROVIDERS[0]].address in asked_providers(state, auction.id_text)


def test_claims_become_a_profile_with_the_class_of_the_gpu() -> None:
    record = STATE.providers[PROVIDERS[0]]
    assert record.claims is not None
    claims = replace(record.claims, gpu_model=GPU_MODEL_ID["h100"])
    found = claimed_profile(replace(record, claims=claims), order_terms(compliance=5))
    assert found is not None
    assert (found.gpu_class, found.compliance, found.vram_gb) == (GPU_CLASS_ID["h100"], 5, 24)


def test_a_provider_without_claims_fits_no_order() -> None:
    record = replace(STATE.providers[PROVIDERS[0]], claims=None)
    assert claimed_status(order_terms(), record) is not BidStatus.ELIGIBLE


def test_what_keeps_providers_out_is_counted_by_its_name() -> None:
    assert filter_counts(PROFILES, order_terms(min_vram_gb=16)) == {"VRAM": 1}
    assert filter_counts(PROFILES, order_terms(gpu_units=4)) == {"GPU_UNITS": 3}
    assert filter_counts(PROFILES, order_terms()) == {}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({"min_vram_gb": 80}, [("vram_gb", "24", 2), ("vram_gb", "8", 1)]),
        ({"countries": 1 << COUNTRY_ID["FR"]}, [("region", "BR", 3)]),
        ({"tiers": 1 << 3}, [("tier", "verified", 3)]),
        ({"min_uptime_ppm": 999_000}, [("uptime", "0.99", 3)]),
        ({"min_reputation_ppm": 999_000}, [("reputation", "0.98", 3)]),
        ({"gpu_units": 2}, [("gpu_count", "1", 3)]),
        ({"only": ("0x" + "99" * 20,)}, [("only", provider, 1) for provider in PROVIDERS]),
        ({"compliance": 2}, [("compliance", "any", 3)]),
        ({"min_gpu_class": 200}, [("gpu_class", "rtx32", 3)]),
        ({}, []),
    ],
)
def test_the_nearest_changes_are_those_of_one_field(
    terms: dict[str, Any], expected: list[tuple[str, str, int]]
) -> None:
    expected = [(field, _country() if field == "region" else value, count) for field, value, count in expected]
    assert nearest_relaxations(PROFILES, order_terms(**terms)) == [FilterChange(*each) for each in expected]


def _country() -> str:
    return next(name for name, number in COUNTRY_ID.items() if number == PROFILES[0].country)


def test_a_provider_that_two_filters_keep_out_is_no_reason_to_change_one() -> None:
    table = [profile(PROVIDERS[0], vram_gb=8, gpu_units=0)]
    assert nearest_relaxations(table, order_terms(min_vram_gb=16)) == []
    ignored = nearest_relaxations([profile(PROVIDERS[0])], order_terms(ignore=(PROVIDERS[0],)))
    assert ignored == [FilterChange("ignore", f"without {PROVIDERS[0]}", 1)]
