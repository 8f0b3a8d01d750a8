"""Tiers: one step up, terms to keep one that are lower, and every term says what would change it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.policy.market_ids import TIER_ID
from sparewatt.trust.tiers import PPM, TIER_TABLE, Tier, TierFacts, check_terms, decide_tier, meets

GOOD = TierFacts(
    days=30, uptime_ppm=999_000, done=1_000, failed=1, checks_passed=80, bond_micro=200_000_000, attested=True
)
facts = st.builds(
    TierFacts,
    days=st.integers(0, 30),
    uptime_ppm=st.integers(0, PPM),
    done=st.integers(0, 2_000),
    failed=st.integers(0, 200),
    checks_passed=st.integers(0, 100),
    checks_failed=st.integers(0, 2),
    bond_micro=st.integers(0, 200_000_000),
    attested=st.booleans(),
)


def test_the_words_are_those_of_the_policy_and_of_the_contracts() -> None:
    assert [tier.value for tier in Tier] == list(TIER_ID)


def test_a_newcomer_is_community_and_reads_what_is_missing() -> None:
    decision = decide_tier(TierFacts(), current=Tier.COMMUNITY)
    assert (decision.tier, decision.next_tier, decision.kept) == (Tier.COMMUNITY, Tier.VERIFIED, ())
    assert [check.name for check in decision.missing] == ["days", "uptime", "jobs", "checks_passed", "bond"]
    assert "seen up on 0 of 7 days" in [check.text for check in decision.missing]


def test_a_node_rises_one_tier_at_a_time() -> None:
    assert decide_tier(GOOD, current=Tier.COMMUNITY).tier is Tier.VERIFIED
    top = decide_tier(GOOD, current=Tier.VERIFIED)
    assert (top.tier, top.next_tier, top.wanted) == (Tier.DATACENTER, None, ())


def test_a_datacenter_needs_an_auditor_and_a_verified_node_none() -> None:
    strange = replace(GOOD, attested=False)
    decision = decide_tier(strange, current=Tier.VERIFIED)
    assert decision.tier is Tier.VERIFIED
    assert [check.name for check in decision.missing] == ["attestation"]
    assert decide_tier(strange, current=Tier.DATACENTER).tier is Tier.VERIFIED  # it expired


def test_what_keeps_a_tier_is_lower_than_what_promotes_to_it() -> None:
    between = replace(GOOD, uptime_ppm=950_000)
    assert decide_tier(between, current=Tier.COMMUNITY).tier is Tier.COMMUNITY
    assert decide_tier(between, current=Tier.VERIFIED).tier is Tier.VERIFIED
    assert decide_tier(replace(GOOD, uptime_ppm=929_999), current=Tier.VERIFIED).tier is Tier.COMMUNITY


def test_a_fall_may_go_down_two_tiers() -> None:
    assert decide_tier(replace(GOOD, checks_failed=1), current=Tier.DATACENTER).tier is Tier.COMMUNITY


@pytest.mark.parametrize("tier", list(TIER_TABLE))
def test_no_term_to_keep_a_tier_is_above_the_term_that_promotes_to_it(tier: Tier) -> None:
    row = TIER_TABLE[tier]
    least = TierFacts(
        days=row.promote.days,
        uptime_ppm=row.promote.uptime_ppm,
        done=row.promote.jobs,
        checks_passed=row.promote.checks_passed,
        bond_micro=row.promote.bond_micro,
        attested=row.promote.attested,
    )
    assert meets(least, row.promote)
    assert meets(least, row.keep)


@given(facts, st.sampled_from(Tier))
def test_a_tier_is_stable_under_the_same_facts_after_at_most_two_looks(known: TierFacts, current: Tier) -> None:
    second = decide_tier(known, current=decide_tier(known, current=current).tier)
    assert decide_tier(known, current=second.tier) == second


@given(facts, st.sampled_from(Tier), st.integers(0, PPM), st.integers(0, 500), st.integers(0, 100))
def test_more_of_what_is_good_never_lowers_a_tier(
    known: TierFacts, current: Tier, uptime: int, done: int, passed: int
) -> None:
    better = replace(
        known,
        uptime_ppm=min(PPM, known.uptime_ppm + uptime),
        done=known.done + done,
        checks_passed=known.checks_passed + passed,
    )
    order = list(Tier)
    before, after = (decide_tier(each, current=current).tier for each in (known, better))
    assert order.index(after) >= order.index(before)


@given(facts, st.sampled_from(list(TIER_TABLE)))
def test_every_check_says_what_there_is_and_what_is_needed(known: TierFacts, tier: Tier) -> None:
    checks = check_terms(known, TIER_TABLE[tier].promote)
    assert meets(known, TIER_TABLE[tier].promote) == all(check.is_met for check in checks)
    assert all(check.text for check in checks)
    assert len({check.name for check in checks}) == len(checks)
