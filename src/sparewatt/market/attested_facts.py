"""What auditors vouch for of a provider at a time, in the words of policies. Pure.

An attestation counts until it expires, and one whose detail is zero was taken back. The detail of an attestation of
compliance is the hash of the standards that it is about (`standards_hash`).
"""

from __future__ import annotations

from itertools import combinations

from sparewatt.market.chain_records import Attestation, ProviderRecord
from sparewatt.market.snapshots.chain_facts import TOPIC_COMPLIANCE, standards_hash
from sparewatt.policy.fields import COMPLIANCES
from sparewatt.policy.market_ids import OPERATOR

_STANDARDS_BY_HASH = {
    standards_hash(names).hex(): frozenset(names)
    for count in range(1, len(COMPLIANCES) + 1)
    for names in combinations(COMPLIANCES, count)
}


def attested_standards(record: ProviderRecord, *, unix_s: float) -> frozenset[str]:
    """The words of the policy field `compliance`."""
    found: frozenset[str] = frozenset()
    for attestation in record.attestations.values():
        if attestation.topic == TOPIC_COMPLIANCE and _holds(attestation, unix_s):
            found |= _STANDARDS_BY_HASH.get(attestation.detail.removeprefix("0x"), frozenset())
    return found


def auditors_of(record: ProviderRecord, *, unix_s: float) -> frozenset[str]:
    """Addresses, and the word for the auditors of a network that names no other: its operator."""
    found = {each.auditor.lower() for each in record.attestations.values() if _holds(each, unix_s)}
    return frozenset({*found, OPERATOR}) if found else frozenset()


def _holds(attestation: Attestation, unix_s: float) -> bool:
    return attestation.expires_at >= unix_s and int(attestation.detail, 16) != 0
