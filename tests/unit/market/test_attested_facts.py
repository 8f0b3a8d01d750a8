"""What auditors vouch for, with its expiry."""

from __future__ import annotations

from sparewatt.market.attested_facts import attested_standards, auditors_of
from sparewatt.market.chain_records import Attestation, ProviderRecord, RegistryStatus
from sparewatt.market.snapshots.chain_facts import TOPIC_COMPLIANCE, TOPIC_SPECIFICATIONS, standards_hash

AUDITOR, OTHER = "0x" + "AA" * 20, "0x" + "bb" * 20


def record(*attestations: Attestation) -> ProviderRecord:
    by_topic = {(each.auditor, each.topic): each for each in attestations}
    return ProviderRecord(provider="0x1", status=RegistryStatus.ACTIVE, registered_at=0, attestations=by_topic)


def detail(*standards: str) -> str:
    return "0x" + standards_hash(standards).hex()


def test_standards_count_until_they_expire() -> None:
    attested = record(Attestation(AUDITOR, TOPIC_COMPLIANCE, detail("soc2", "gdpr"), 100))
    assert attested_standards(attested, unix_s=100) == {"gdpr", "soc2"}
    assert auditors_of(attested, unix_s=100) == {AUDITOR.lower(), "operator"}
    assert attested_standards(attested, unix_s=101) == frozenset()
    assert auditors_of(attested, unix_s=101) == frozenset()


def test_an_attestation_that_was_taken_back_or_is_about_something_else_gives_no_standard() -> None:
    taken_back = record(Attestation(AUDITOR, TOPIC_COMPLIANCE, "0x" + "00" * 32, 100))
    specifications = record(Attestation(OTHER, TOPIC_SPECIFICATIONS, detail("gdpr"), 100))
    assert attested_standards(taken_back, unix_s=1) == frozenset()
    assert auditors_of(taken_back, unix_s=1) == frozenset()
    assert attested_standards(specifications, unix_s=1) == frozenset()
    assert OTHER in auditors_of(specifications, unix_s=1)


def test_standards_of_two_auditors_add_up() -> None:
    both = record(
        Attestation(AUDITOR, TOPIC_COMPLIANCE, detail("gdpr"), 100),
        Attestation(OTHER, TOPIC_COMPLIANCE, detail("hipaa"), 100),
    )
    assert attested_standards(both, unix_s=1) == {"gdpr", "hipaa"}
