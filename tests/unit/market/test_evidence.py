"""A record accuses nobody by its own word: the chain says whose signatures count, and which table and policy hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.chain_records import (
    AcceptedCertificate,
    MarketState,
    NodeKeyChange,
    OrderRecord,
    OrderState,
    ProviderRecord,
    RegistryStatus,
    SnapshotRecord,
    WeightChange,
    WeightHistory,
)
from sparewatt.market.evidence import EvidenceUnavailable, evidence_of
from sparewatt.market.faults import MarketFault, ProvenFault
from sparewatt.market.match.record import AuctionRecord
from sparewatt.protocol.contracts.match import NO_PROVIDER, Award, CertificateRecord, Task
from sparewatt.protocol.typed_message import struct_hash
from tests.market_network.by_hand import USD, HandMatch

OPENED_AT = 5_000


@pytest.fixture
def match() -> HandMatch:
    return HandMatch.of({0: 2 * USD, 1: USD})


def state_of(match: HandMatch) -> MarketState:
    context = match.cast.context
    order_id = "0x" + context.order_id.hex()
    state = MarketState(stake_version=context.stake_version, totals={context.stake_version: 1})
    state.orders[order_id] = OrderRecord(
        order_id=order_id,
        renter="0x" + "ab" * 20,
        state=OrderState.MATCHED,
        attempt=context.attempt,
        terms=context.terms,
        spec_hash="0x" + context.spec_hash.hex(),
        stake_version=context.stake_version,
        snapshot_epoch=context.snapshot_epoch,
        expires_at=9_999,
        max_attempts=3,
        created_at=OPENED_AT,
        opened_at={context.attempt: OPENED_AT},
    )
    root = "0x" + context.snapshot_root.hex()
    state.snapshots[context.snapshot_epoch] = SnapshotRecord(context.snapshot_epoch, root, 1, "0x", 1)
    for provider, key in context.node_keys.items():
        state.providers[provider] = ProviderRecord(
            provider=provider,
            status=RegistryStatus.ACTIVE,
            registered_at=1,
            node_keys=(NodeKeyChange(key, 1),),
        )
    for number, (vote_key, weight) in enumerate(context.weights.items()):
        change = WeightChange(context.stake_version, weight)
        state.histories[vote_key] = WeightHistory(f"0x{number:040x}", (change,), dropped=4)
    return state


def accept(state: MarketState, task: Task) -> None:
    """The chain has a certificate of this task."""
    record = CertificateRecord(struct_hash(task), 0, (Award(NO_PROVIDER, 0),) * 3)
    order_id = "0x" + task.order_id.hex()
    certificate = AcceptedCertificate(task.attempt, record, task.bid_count, (), OPENED_AT)
    state.orders[order_id] = replace(state.orders[order_id], certificate=certificate)


def judged(match: HandMatch, state: MarketState, *records: AuctionRecord, overdue: bool = False) -> list[ProvenFault]:
    context = match.cast.context
    found = evidence_of(
        state,
        "0x" + context.order_id.hex(),
        context.attempt,
        domain=context.domain,
        version=context.stake_version,
        records=records,
        is_book_overdue=overdue,
    )
    return list(found)


def two_lists(match: HandMatch) -> AuctionRecord:
    lists = tuple(match.commit_list(i) for i in range(4))
    return match.record(commit_lists=(*lists, match.commit_list(0, [1])))


def test_honest_records_prove_nothing(match: HandMatch) -> None:
    assert judged(match, state_of(match), match.record(), match.record()) == []


def test_a_double_sign_is_proven_with_the_hint_of_the_chain(match: HandMatch) -> None:
    (fault,) = judged(match, state_of(match), match.record(), two_lists(match))
    assert (fault.fault, fault.culprits) == (MarketFault.DOUBLE_SIGN, (match.cast.vote_keys[0].address.lower(),))
    assert fault.arguments[-2:] == (match.cast.context.stake_version, 4)


def test_weights_that_only_a_record_has_accuse_nobody(match: HandMatch) -> None:
    state = state_of(match)
    liar = match.cast.vote_keys[0].address.lower()
    del state.histories[liar]
    assert judged(match, state, two_lists(match)) == []


def test_a_node_key_that_only_a_record_has_accuses_nobody(match: HandMatch) -> None:
    twice = match.record(commits=(match.commit(0), match.commit(0, 7)))
    assert [each.fault for each in judged(match, state_of(match), twice)] == [MarketFault.TWO_COMMITS]
    state = state_of(match)
    provider = match.cast.providers[0].address.lower()
    state.providers[provider] = replace(state.providers[provider], node_keys=(NodeKeyChange("0x" + "99" * 20, 1),))
    assert judged(match, state, twice) == []


def test_a_false_context_is_passed_over_and_the_messages_still_count(match: HandMatch) -> None:
    """The liar's own record names another policy; what it signed is in there all the same."""
    context = match.cast.context
    cheap = replace(context.terms, max_price_uusd=1)
    false = replace(two_lists(match), context=replace(context, terms=cheap, policy_hash=struct_hash(cheap)))
    assert [each.fault for each in judged(match, state_of(match), false, match.record())] == [MarketFault.DOUBLE_SIGN]
    with pytest.raises(EvidenceUnavailable, match="no record agrees"):
        judged(match, state_of(match), false)


def test_a_table_that_does_not_hash_to_the_snapshot_is_passed_over(match: HandMatch) -> None:
    context = match.cast.context
    provider = next(iter(context.profiles))
    changed = {**context.profiles, provider: replace(context.profiles[provider], uptime_ppm=1)}
    with pytest.raises(EvidenceUnavailable, match="no record agrees"):
        judged(match, state_of(match), match.record(context=replace(context, profiles=changed)))


def test_an_attempt_that_the_chain_does_not_have_is_not_judged(match: HandMatch) -> None:
    context, state = match.cast.context, state_of(match)
    with pytest.raises(EvidenceUnavailable, match="does not have this attempt"):
        evidence_of(state, "0x" + "00" * 32, 0, domain=context.domain, version=1, records=[match.record()])
    with pytest.raises(EvidenceUnavailable, match="stake version 77"):
        evidence_of(
            state,
            "0x" + context.order_id.hex(),
            context.attempt,
            domain=context.domain,
            version=77,
            records=[match.record()],
        )


def test_signers_of_an_overdue_book_are_silent(match: HandMatch) -> None:
    state = state_of(match)
    accept(state, match.task(match.book()))
    assert judged(match, state, match.record()) == []
    (fault,) = judged(match, state, match.record(), overdue=True)
    assert (fault.fault, len(fault.culprits)) == (MarketFault.SILENCE, 3)
