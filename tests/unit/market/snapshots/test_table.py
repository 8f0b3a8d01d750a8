"""The table of an epoch: medians by stake, what holds without a quorum, and when it is worth an epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.rule import snapshot_tree
from sparewatt.market.snapshots.model import ChainFacts
from sparewatt.market.snapshots.table import TableChange, change_of, is_due, table_of
from sparewatt.protocol.contracts.match import Observation, Observations, Profile
from sparewatt.protocol.contracts.merkle import verify_proof
from sparewatt.protocol.contracts.message_ranges import require_in_range
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.trust.lease_record import NEWCOMER_REPUTATION_PPM, NEWCOMER_UPTIME_PPM
from tests.unit.market.snapshots.snapshot_network import ALICE, BOB, CAROL, provider_facts

A, B, C, D = ("0x" + digit * 40 for digit in "1234")


def chain(*providers: str, weights: dict[str, int] | None = None, unix_s: int = 100) -> ChainFacts:
    found = tuple(provider_facts(provider) for provider in providers or (ALICE,))
    return ChainFacts(height=9, unix_s=unix_s, weights=weights or {A: 1, B: 1, C: 1, D: 1}, providers=found)


def told(*rows: Observation) -> Observations:
    return Observations(5, 9, rows)


def row(uptime_ppm: int = 0, reputation_ppm: int = 0, *, provider: str = ALICE, zone: int = 255) -> Observation:
    return Observation(provider, uptime_ppm, reputation_ppm, zone)


def profile(facts: ChainFacts, published: dict[str, Observations], *previous: Profile) -> Profile:
    (found,) = table_of(facts, published, epoch=5, previous=previous)
    return found


def test_each_number_is_a_lower_median_of_its_own() -> None:
    published = {A: told(row(1, 40)), B: told(row(2, 30)), C: told(row(3, 20)), D: told(row(4, 10))}
    found = profile(chain(), published)
    assert (found.uptime_ppm, found.reputation_ppm, found.epoch) == (2, 20, 5)


def test_the_median_goes_by_stake() -> None:
    published = {A: told(row(1)), B: told(row(2)), C: told(row(3))}
    assert profile(chain(weights={A: 5, B: 1, C: 1}), published).uptime_ppm == 1
    assert profile(chain(weights={A: 1, B: 1, C: 5}), published).uptime_ppm == 3
    assert profile(chain(weights={A: 2, B: 1, C: 1}), published).uptime_ppm == 1, "exactly half of the weight"


def test_without_a_quorum_the_last_value_stays_and_without_that_the_prior() -> None:
    two_of_four = {A: told(row(1, 1, zone=9)), B: told(row(1, 1, zone=9))}
    found = profile(chain(), two_of_four)
    assert (found.uptime_ppm, found.reputation_ppm) == (NEWCOMER_UPTIME_PPM, NEWCOMER_REPUTATION_PPM)
    assert found.zone == provider_facts().zone
    last = replace(found, epoch=4, uptime_ppm=777, reputation_ppm=555, zone=3)
    kept = profile(chain(), two_of_four, last)
    assert (kept.uptime_ppm, kept.reputation_ppm, kept.zone, kept.epoch) == (777, 555, 3, 5)


def test_exactly_two_thirds_are_no_quorum() -> None:
    published = {A: told(row(1)), B: told(row(1))}
    assert profile(chain(weights={A: 1, B: 1, C: 1}), published).uptime_ppm == NEWCOMER_UPTIME_PPM
    assert profile(chain(weights={A: 101, B: 100, C: 100}), published).uptime_ppm == 1


def test_a_row_that_some_leave_out_is_published_by_the_others_only() -> None:
    published = {A: told(row(1), row(1, provider=BOB)), B: told(row(1)), C: told(row(1)), D: told(row(1))}
    alice, bob = table_of(chain(ALICE, BOB), published, epoch=5, previous=())
    assert (alice.uptime_ppm, bob.uptime_ppm) == (1, NEWCOMER_UPTIME_PPM)


def test_what_somebody_without_weight_says_counts_nothing() -> None:
    published = {"0x" + "9" * 40: told(row(1)), A: told(row(5)), B: told(row(5))}
    assert profile(chain(), published).uptime_ppm == NEWCOMER_UPTIME_PPM


def test_a_row_about_nobody_makes_no_profile() -> None:
    published = {key: told(row(1), row(1, provider=CAROL)) for key in (A, B, C, D)}
    assert [each.provider for each in table_of(chain(ALICE), published, epoch=5, previous=())] == [ALICE]


def test_who_is_not_active_any_more_is_not_kept_from_the_last_table() -> None:
    last = profile(chain(BOB), {})
    assert [each.provider for each in table_of(chain(ALICE), {}, epoch=6, previous=[last])] == [ALICE]


def test_the_zone_is_the_one_with_most_stake_then_the_lowest() -> None:
    zones = {A: 4, B: 9, C: 9, D: 255}
    assert profile(chain(), {key: told(row(zone=zone)) for key, zone in zones.items()}).zone == 9
    tied = {A: 4, B: 4, C: 9, D: 9}
    assert profile(chain(), {key: told(row(zone=zone)) for key, zone in tied.items()}).zone == 4
    claimed = dict.fromkeys((A, B, C, D), 255)
    assert profile(chain(), {key: told(row(zone=zone)) for key, zone in claimed.items()}).zone == provider_facts().zone


def test_compliance_is_that_of_the_blocks_time() -> None:
    attested = replace(provider_facts(), compliance=((2, 100), (4, 50)))
    for unix_s, mask in ((40, 6), (100, 2), (101, 0)):
        facts = replace(chain(unix_s=unix_s), providers=(attested,))
        assert profile(facts, {}).compliance == mask


def test_every_profile_is_within_the_ranges_of_the_contract_and_in_the_tree() -> None:
    rows = table_of(chain(ALICE, BOB, CAROL), {}, epoch=5, previous=())
    ordered, tree = snapshot_tree(rows)
    assert ordered == rows
    for index, each in enumerate(rows):
        require_in_range(each)
        leaf, path = struct_hash(each), tree.path(index)
        assert verify_proof(root=tree.root, count=tree.count, leaf=leaf, index=index, path=path)


WEIGHTS = st.lists(st.integers(1, 50), min_size=4, max_size=9)
PPM = st.integers(0, 1_000_000)


@given(weights=WEIGHTS, data=st.data())
def test_i23_each_number_lies_between_two_honest_observations_where_a_quorum_published(
    weights: list[int], data: st.DataObject
) -> None:
    keys = ["0x" + f"{number:040x}" for number in range(1, len(weights) + 1)]
    by_key = dict(zip(keys, weights, strict=True))
    total = sum(weights)
    faulty: set[str] = set()
    for key in data.draw(st.permutations(keys)):
        if 3 * (sum(by_key[each] for each in faulty) + by_key[key]) < total:
            faulty.add(key)
    published = {key: told(row(data.draw(PPM), data.draw(PPM))) for key in keys if data.draw(st.booleans())}
    found = profile(chain(weights=by_key), published)
    if 3 * sum(by_key[key] for key in published) > 2 * total:
        honest = [published[key].rows[0] for key in published if key not in faulty]
        uptimes, reputations = [r.uptime_ppm for r in honest], [r.reputation_ppm for r in honest]
        assert min(uptimes) <= found.uptime_ppm <= max(uptimes)
        assert min(reputations) <= found.reputation_ppm <= max(reputations)
    else:
        assert found.uptime_ppm == NEWCOMER_UPTIME_PPM


@given(st.permutations([A, B, C, D]))
def test_the_order_in_which_observations_came_does_not_matter(order: list[str]) -> None:
    published = {key: told(row(int(key[-1]) * 10)) for key in order}
    assert profile(chain(), published).uptime_ppm == 20


# When a table is worth an epoch


def changed(**changes: Any) -> TableChange:
    (before,) = table_of(chain(), {}, epoch=5, previous=())
    return change_of([before], [replace(before, epoch=6, **changes)])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, TableChange.NOTHING),
        ({"uptime_ppm": NEWCOMER_UPTIME_PPM + 9_999}, TableChange.NOTHING),
        ({"uptime_ppm": NEWCOMER_UPTIME_PPM - 10_000}, TableChange.SMALL),
        ({"reputation_ppm": NEWCOMER_REPUTATION_PPM + 99_999}, TableChange.SMALL),
        ({"uptime_ppm": NEWCOMER_UPTIME_PPM - 100_000}, TableChange.LARGE),
        ({"vram_gb": 25}, TableChange.LARGE),
        ({"compliance": 8}, TableChange.LARGE),
        ({"zone": 3}, TableChange.LARGE),
    ],
)
def test_a_change_is_as_large_as_its_largest_difference(changes: dict[str, int], expected: TableChange) -> None:
    assert changed(**changes) is expected


def test_providers_that_come_or_go_are_a_large_change() -> None:
    one = table_of(chain(ALICE), {}, epoch=5, previous=())
    two = table_of(chain(ALICE, BOB), {}, epoch=5, previous=())
    assert change_of(one, two) is change_of(two, one) is TableChange.LARGE
    assert change_of((), ()) is TableChange.NOTHING


@pytest.mark.parametrize(
    ("change", "age_s"), [(TableChange.LARGE, 10), (TableChange.SMALL, 60), (TableChange.NOTHING, 86_400)]
)
def test_a_smaller_change_waits_longer(change: TableChange, age_s: int) -> None:
    assert is_due(change, age_s=age_s, spacing_s=10)
    assert not is_due(change, age_s=age_s - 1, spacing_s=10)
