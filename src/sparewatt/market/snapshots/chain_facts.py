"""What a table takes from the chain: the ACTIVE providers at a block, and what validators weigh there. Pure.

Country, GPU and VRAM are what the provider claims in the registry. A tier above community counts only with an
unexpired attestation of the specifications, since a claim costs nothing. Compliance counts by attestation alone: its
detail is the hash of the standards' names, sorted, with commas (`standards_hash`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from sparewatt.market.chain_records import Attestation, MarketState, ProviderRecord, RegistryStatus
from sparewatt.market.snapshots.model import ChainFacts, ProviderFacts, VotingFacts
from sparewatt.policy.market_ids import COMPLIANCE_ID, GPU_MODEL_ID, NONE, OPERATOR, TIER_ID, gpu_class_id_of, mask_of
from sparewatt.protocol.signing import keccak256

TOPIC_COMPLIANCE = 0
TOPIC_SPECIFICATIONS = 2
"""As the registry numbers what an attestation is about."""
FACTS_KEPT = 64
"""Blocks at which something changed: a leader names one of the newest."""

_CLASS_OF_MODEL = {number: gpu_class_id_of(name) for name, number in GPU_MODEL_ID.items()}


def facts_of(state: MarketState, *, height: int, unix_s: int) -> ChainFacts:
    """From the final state at a block, and the block's time."""
    providers = sorted(state.providers.values(), key=lambda record: int(record.provider, 16))
    active = [_provider_facts(record) for record in providers if record.status is RegistryStatus.ACTIVE]
    return ChainFacts(
        height=height,
        unix_s=unix_s,
        weights=_weights(state),
        providers=tuple(facts for facts in active if facts is not None),
    )


def voting_facts_of(state: MarketState, *, unix_s: int) -> VotingFacts:
    """From the state at the newest block, and the block's time."""
    return VotingFacts(weights=_weights(state), latest=state.latest_snapshot, unix_s=unix_s)


def standards_hash(standards: Iterable[str]) -> bytes:
    """The detail of an attestation of compliance, for example of gdpr and soc2."""
    return keccak256(",".join(sorted(standards)).encode())


def compliance_at(facts: ProviderFacts, unix_s: int) -> int:
    """The mask of what is attested and has not expired."""
    mask = 0
    for attested, expires_at in facts.compliance:
        mask |= attested if expires_at >= unix_s else 0
    return mask


def tier_at(facts: ProviderFacts, unix_s: int) -> int:
    return facts.tier if facts.attested_until >= unix_s else min(facts.tier, TIER_ID["community"])


class FactsHistory:
    """The facts at the newest final blocks, for a table at the block that another validator names."""

    def __init__(self) -> None:
        self._known: deque[ChainFacts] = deque(maxlen=FACTS_KEPT)

    @property
    def newest(self) -> ChainFacts | None:
        return self._known[-1] if self._known else None

    def add(self, facts: ChainFacts) -> bool:
        """Whether it is another table's. Of a stretch without a change the first and the last block are kept.

        A block that is not above the newest takes the place of all from it on: the view was built anew.
        """
        while self._known and self._known[-1].height >= facts.height:
            if self._known[-1] == facts:
                return False
            self._known.pop()
        changed = not self._known or not _same(self._known[-1], facts)
        if not changed:
            facts = replace(facts, weights=self._known[-1].weights, providers=self._known[-1].providers)
            if len(self._known) > 1 and _same(self._known[-2], facts):
                self._known.pop()
        self._known.append(facts)
        return changed

    def at(self, height: int) -> ChainFacts | None:
        """None if the block is above the newest, too old, or between two that differ: then nobody here can tell."""
        before = next((facts for facts in reversed(self._known) if facts.height <= height), None)
        after = next((facts for facts in self._known if facts.height >= height), None)
        if before is None or after is None or not _same(before, after):
            return None
        return replace(before, height=height, unix_s=after.unix_s)


def _same(left: ChainFacts, right: ChainFacts) -> bool:
    """Also over time: no attestation expires in between."""
    if left.weights != right.weights or left.providers != right.providers:
        return False
    times = (left.unix_s, right.unix_s)
    return all(
        len({(compliance_at(facts, unix_s), tier_at(facts, unix_s)) for unix_s in times}) == 1
        for facts in left.providers
    )


def _weights(state: MarketState) -> dict[str, int]:
    return {each.vote_key.lower(): each.weight for each in state.weights_at(state.stake_version)}


def _provider_facts(record: ProviderRecord) -> ProviderFacts | None:
    claims = record.claims
    if claims is None:
        return None
    attested = record.attestations.values()
    return ProviderFacts(
        provider=record.provider.lower(),
        country=claims.country,
        zone=claims.zone,
        tier=claims.tier,
        gpu_model=claims.gpu_model,
        gpu_class=_CLASS_OF_MODEL.get(claims.gpu_model, NONE),
        vram_gb=claims.vram_gb,
        gpu_units=claims.gpu_units,
        compliance=_compliance(attested),
        attested_until=specifications_attested_until(record),
    )


def specifications_attested_until(record: ProviderRecord) -> int:
    """Up to when an auditor vouches for what the provider says of its machine; 0 if none does."""
    stands = (each for each in record.attestations.values() if _stands(each, TOPIC_SPECIFICATIONS))
    return max((each.expires_at for each in stands), default=0)


def _compliance(attested: Iterable[Attestation]) -> tuple[tuple[int, int], ...]:
    standards = [each for each in attested if _stands(each, TOPIC_COMPLIANCE)]
    known = [(_MASK_OF_DETAIL.get(each.detail.lower(), 0), each.expires_at) for each in standards]
    return tuple(sorted(pair for pair in known if pair[0]))


def _stands(attestation: Attestation, topic: int) -> bool:
    """A detail of zeros takes it back."""
    return attestation.topic == topic and int(attestation.detail, 16) != 0


def _masks() -> dict[str, int]:
    """By detail. Every auditor that the registry allows stands for the operator, the only one of the table."""
    ids = {standard: number for (standard, auditor), number in COMPLIANCE_ID.items() if auditor == OPERATOR}
    subsets = [chosen for count in range(1, len(ids) + 1) for chosen in combinations(sorted(ids), count)]
    return {"0x" + standards_hash(chosen).hex(): mask_of(*(ids[each] for each in chosen)) for chosen in subsets}


_MASK_OF_DETAIL = _masks()
