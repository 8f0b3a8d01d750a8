"""Sentences about trust: what moved and by which counts, and what the next tier lacks."""

from __future__ import annotations

from sparewatt.trust.explain import RULES, trust_sentences
from sparewatt.trust.lower_bound import UNIT
from sparewatt.trust.node_record import RecordDay, TimedSpeed, record_of
from sparewatt.trust.tiers import Tier, TierFacts, decide_tier

TODAY = 20_000
NEWCOMER = decide_tier(TierFacts(), current=Tier.COMMUNITY)


def day(ago: int, **counts: int) -> RecordDay:
    given = {"up_s": 86_400, "known_s": 86_400, "good_units": 50 * UNIT, "bad_units": 0}
    return RecordDay(TODAY - ago, **(given | {"checks_passed": 5, "checks_failed": 0} | counts))


def sentences(*days: RecordDay, speeds: tuple[TimedSpeed, ...] = ()) -> list[str]:
    return trust_sentences(days, speeds, NEWCOMER, today=TODAY)


def test_a_fall_is_explained_by_what_was_counted_in_the_week() -> None:
    good = [day(ago) for ago in range(8, 40)]
    said = sentences(*good, day(1, bad_units=60 * UNIT, good_units=40 * UNIT, checks_failed=1))
    completion = next(each for each in said if each.startswith("Completion"))
    assert "fell from" in completion
    assert "40.0 jobs finished and 60.0 failed" in completion
    assert any(each.startswith("Correctness fell") and "5 checks passed, 1 failed" in each for each in said)


def test_a_record_that_only_ages_says_so() -> None:
    said = sentences(*(day(ago, good_units=2 * UNIT) for ago in range(8, 12)))
    assert any("no jobs of other accounts, so that older ones are forgotten" in each for each in said)


def test_without_a_change_there_is_one_sentence_for_that() -> None:
    steady = [day(ago, good_units=10**10, checks_passed=10**6, up_s=86_400) for ago in range(90)]
    assert sentences(*steady)[0] == "Nothing in its record moved by half a percent in a week."


def test_what_the_next_tier_lacks_is_said() -> None:
    assert any(each.startswith("For the tier verified these are missing: seen up on 0") for each in sentences())


def test_a_node_at_the_edge_of_its_tier_is_warned() -> None:
    facts = TierFacts(days=7, uptime_ppm=10**6, done=100, checks_passed=30, bond_micro=5_000_000)
    decision = decide_tier(facts, current=Tier.VERIFIED)
    said = trust_sentences([], [], decision, today=TODAY)
    assert any("by no margin" in each and "a bond of $5" in each for each in said)


def test_every_facet_has_its_rule_in_words() -> None:
    assert {facet.name for facet in record_of([], [], today=TODAY).facets} | {"leases"} == set(RULES)
