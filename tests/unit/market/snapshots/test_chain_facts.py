"""What a table takes from the chain: who is ACTIVE, what it claims, and what auditors attest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.market.chain_records import (
    Attestation,
    MarketState,
    ProviderRecord,
    RegisteredClaims,
    RegistryStatus,
    SnapshotRecord,
    WeightChange,
    WeightHistory,
)
from sparewatt.market.snapshots.chain_facts import (
    FACTS_KEPT,
    TOPIC_COMPLIANCE,
    TOPIC_SPECIFICATIONS,
    FactsHistory,
    compliance_at,
    facts_of,
    standards_hash,
    tier_at,
    voting_facts_of,
)
from sparewatt.market.snapshots.model import ChainFacts
from sparewatt.policy.market_ids import COMPLIANCE_ID, GPU_CLASS_ID, GPU_MODEL_ID, OPERATOR, OTHER_GPU, mask_of
from tests.unit.market.snapshots.snapshot_network import ALICE, BOB, CAROL, provider_facts

AUDITOR, KEY = "0x" + "d" * 40, "0x" + "7" * 40
NOW_S = 1_800_000_000
CLAIMS = RegisteredClaims(4, 7, 1, GPU_MODEL_ID["rtx-4090"], 24, 2, 100, "0x" + "00" * 32)


def record(
    provider: str = ALICE,
    *,
    status: RegistryStatus = RegistryStatus.ACTIVE,
    attested: dict[int, tuple[bytes, int]] | None = None,
    **claims: Any,
) -> ProviderRecord:
    attestations = {
        (AUDITOR, topic): Attestation(AUDITOR, topic, "0x" + detail.hex(), expires_at)
        for topic, (detail, expires_at) in (attested or {}).items()
    }
    return ProviderRecord(
        provider=provider,
        status=status,
        registered_at=1,
        claims=replace(CLAIMS, **claims),
        attestations=attestations,
    )


def state_of(*records: ProviderRecord, **changes: Any) -> MarketState:
    history = WeightHistory(operator="0x", changes=(WeightChange(1, 5), WeightChange(3, 8)))
    return MarketState(
        providers={each.provider: each for each in records},
        histories={KEY: history},
        totals={1: 5, 2: 5, 3: 8},
        stake_version=2,
        **changes,
    )


def facts(*records: ProviderRecord, height: int = 10, unix_s: int = NOW_S) -> ChainFacts:
    return facts_of(state_of(*records), height=height, unix_s=unix_s)


def test_only_active_providers_are_there_and_they_ascend() -> None:
    others = [record("0x" + f"{number:040x}", status=status) for number, status in enumerate(RegistryStatus, start=1)]
    found = facts(record(CAROL), record(ALICE), *others)
    assert [each.provider for each in found.providers] == ["0x" + f"{2:040x}", ALICE, CAROL]


def test_claims_are_taken_as_they_stand_and_the_class_by_the_table_of_gpus() -> None:
    (found,) = facts(record()).providers
    assert (found.country, found.zone, found.tier, found.vram_gb, found.gpu_units) == (4, 7, 1, 24, 2)
    assert found.gpu_class == GPU_CLASS_ID["rtx24"]


@pytest.mark.parametrize("gpu_model", [0, OTHER_GPU, 254, GPU_MODEL_ID["apple-m4"]])
def test_a_gpu_without_a_class_has_none(gpu_model: int) -> None:
    (found,) = facts(record(gpu_model=gpu_model)).providers
    assert (found.gpu_model, found.gpu_class) == (gpu_model, 0)


def test_observations_weigh_by_the_stake_version_of_the_block() -> None:
    assert facts().weights == {KEY: 5}


def test_voting_facts_are_of_the_newest_state() -> None:
    posted = SnapshotRecord(4, "0x" + "01" * 32, 1, "0x" + "02" * 32, NOW_S)
    found = voting_facts_of(state_of(snapshots={4: posted}), unix_s=NOW_S + 1)
    assert (found.weights, found.latest, found.unix_s) == ({KEY: 5}, posted, NOW_S + 1)


# Attestations


def test_standards_count_while_they_are_attested() -> None:
    attested = {TOPIC_COMPLIANCE: (standards_hash(["soc2", "gdpr"]), NOW_S + 10)}
    (found,) = facts(record(attested=attested)).providers
    mask = mask_of(COMPLIANCE_ID["gdpr", OPERATOR], COMPLIANCE_ID["soc2", OPERATOR])
    assert compliance_at(found, NOW_S) == mask
    assert compliance_at(found, NOW_S + 10) == mask
    assert compliance_at(found, NOW_S + 11) == 0


@pytest.mark.parametrize("detail", [bytes(32), standards_hash(["made-up"]), standards_hash([])])
def test_what_is_taken_back_or_unknown_attests_nothing(detail: bytes) -> None:
    (found,) = facts(record(attested={TOPIC_COMPLIANCE: (detail, NOW_S + 10)})).providers
    assert compliance_at(found, NOW_S) == 0


def test_the_order_of_the_standards_does_not_matter() -> None:
    assert standards_hash(["a", "b"]) == standards_hash(["b", "a"]) != standards_hash(["ab"])


def test_a_tier_above_community_needs_an_auditor() -> None:
    """The lie: a machine at home says that it is a data centre."""
    (claimed,) = facts(record(tier=3)).providers
    assert tier_at(claimed, NOW_S) == 1
    (attested,) = facts(record(tier=3, attested={TOPIC_SPECIFICATIONS: (bytes([1] * 32), NOW_S)})).providers
    assert tier_at(attested, NOW_S) == 3
    assert tier_at(attested, NOW_S + 1) == 1
    (standards,) = facts(record(tier=3, attested={TOPIC_COMPLIANCE: (standards_hash(["gdpr"]), NOW_S)})).providers
    assert tier_at(standards, NOW_S) == 1, "compliance vouches for no tier"
    (unknown,) = facts(record(tier=0)).providers
    assert tier_at(unknown, NOW_S) == 0


# The history


def at(height: int, *providers: str, unix_s: int = NOW_S, weight: int = 1) -> ChainFacts:
    found = tuple(provider_facts(provider) for provider in providers)
    return ChainFacts(height=height, unix_s=unix_s, weights={KEY: weight}, providers=found)


def history(*known: ChainFacts) -> FactsHistory:
    found = FactsHistory()
    for each in known:
        found.add(each)
    return found


def test_a_block_between_two_that_agree_has_their_facts() -> None:
    found = history(at(10, ALICE), at(20, ALICE), at(30, ALICE), at(40, BOB)).at(25)
    assert found is not None
    assert (found.height, [each.provider for each in found.providers]) == (25, [ALICE])


def test_a_block_between_two_that_differ_is_not_guessed() -> None:
    known = history(at(10, ALICE), at(20, BOB), at(30, BOB, weight=2))
    assert known.at(15) is None
    assert known.at(25) is None
    assert known.at(20) is not None


def test_a_block_that_is_not_known_yet_or_no_more_has_no_facts() -> None:
    known = history(at(10, ALICE), at(20, ALICE))
    assert known.at(9) is None
    assert known.at(21) is None
    assert FactsHistory().at(1) is None
    assert FactsHistory().newest is None


def test_an_attestation_that_expires_in_between_makes_the_blocks_differ() -> None:
    def attested(height: int, unix_s: int) -> ChainFacts:
        (provider,) = facts(record(attested={TOPIC_COMPLIANCE: (standards_hash(["gdpr"]), NOW_S + 5)})).providers
        return replace(at(height, unix_s=unix_s), providers=(provider,))

    assert history(attested(10, NOW_S), attested(20, NOW_S + 5)).at(15) is not None
    assert history(attested(10, NOW_S), attested(20, NOW_S + 6)).at(15) is None


def test_adding_says_whether_anything_changed() -> None:
    known = FactsHistory()
    assert known.add(at(10, ALICE))
    assert not known.add(at(10, ALICE))
    assert not known.add(at(11, ALICE))
    assert known.add(at(12, BOB))


def test_a_view_that_was_built_anew_replaces_what_is_not_below_it() -> None:
    known = history(at(10, ALICE), at(20, BOB), at(30, CAROL))
    known.add(at(20, ALICE))
    assert known.newest == at(20, ALICE)
    assert known.at(30) is None
    assert known.at(15) is not None


def test_the_history_is_bounded_and_long_calm_stretches_take_two_places() -> None:
    known = FactsHistory()
    for height in range(1, 1_000):
        known.add(at(height, ALICE))
    assert known.at(500) is not None
    assert len(known._known) == 2
    for height in range(1_000, 1_000 + 3 * FACTS_KEPT):
        known.add(at(height, ALICE if height % 2 else BOB))
    assert len(known._known) == FACTS_KEPT
