"""What the chain says at the end of an era: bonds, attestations, stakes and votes, by the node that a provider is."""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.core.ids import NodeId
from sparewatt.leasing.era_standing import MarketStanding, standing_of
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.ledger.era_draft import ProviderStanding
from sparewatt.ledger.eras import ChainStanding
from sparewatt.market.chain_records import (
    Attestation,
    BondRecord,
    MarketState,
    NodeKeyChange,
    ProviderRecord,
    RegistryStatus,
    ValidatorRecord,
)
from sparewatt.market.chain_view import ChainView
from sparewatt.market.snapshots.chain_facts import TOPIC_COMPLIANCE, TOPIC_SPECIFICATIONS
from sparewatt.store.lease_matches import StoredVotes
from sparewatt.store.market_events import MarketEvents

NODE = NodeId("0x" + "5" * 40)
PROVIDER, AUDITOR, OPERATOR = ("0x" + digit * 40 for digit in "abc")


class NoEvents:
    async def events_after(self, *_: object, **__: object) -> MarketEvents | None:
        return None


class NoVotes:
    async def list_votes(self, *, limit: int) -> Sequence[StoredVotes]:
        assert limit > 0
        return []


def attested(topic: int, *, expires_at: int, detail: str = "0x" + "1" * 64) -> dict[tuple[str, int], Attestation]:
    return {(AUDITOR, topic): Attestation(AUDITOR, topic, detail, expires_at)}


def market(attestations: dict[tuple[str, int], Attestation]) -> MarketState:
    record = ProviderRecord(
        provider=PROVIDER,
        status=RegistryStatus.ACTIVE,
        registered_at=1,
        node_keys=(NodeKeyChange(NODE, 1),),
        attestations=attestations,
    )
    return MarketState(
        providers={PROVIDER: record},
        bonds={PROVIDER: BondRecord(free_uusd=5, locked_uusd=3, unbonding_uusd=100)},
        validators={
            OPERATOR: ValidatorRecord(operator=OPERATOR, vote_key=AUDITOR, stake_uusd=7, slashed_uusd=1),
            AUDITOR: ValidatorRecord(operator=AUDITOR, vote_key=OPERATOR),
        },
    )


def standing(state: MarketState) -> ChainStanding:
    return standing_of(state, [], since=0, until=10)


def test_a_bond_that_is_on_its_way_out_does_not_count() -> None:
    assert standing(market({})).providers == {NODE: ProviderStanding(bond_micro=8, attested_until=0)}


def test_an_attestation_of_the_specifications_counts_and_another_does_not() -> None:
    found = standing(market(attested(TOPIC_SPECIFICATIONS, expires_at=99))).providers[NODE]
    assert found.attested_until == 99
    assert standing(market(attested(TOPIC_COMPLIANCE, expires_at=99))).providers[NODE].attested_until == 0
    taken_back = attested(TOPIC_SPECIFICATIONS, expires_at=99, detail="0x" + "0" * 64)
    assert standing(market(taken_back)).providers[NODE].attested_until == 0


def test_validators_come_with_stake_and_whether_they_are_jailed_and_those_without_stake_do_not() -> None:
    (validator,) = standing(market({})).validators
    assert (validator.operator, validator.stake_micro, validator.jailed) == (OPERATOR, 7, True)
    assert (validator.votes, validator.due) == (0, 0)


def index(*, has_chain: bool) -> MarketIndex:
    return MarketIndex(NoEvents(), has_chain=has_chain)


async def test_a_network_without_a_chain_has_an_empty_standing_and_one_that_reads_it_waits() -> None:
    without = MarketStanding(index(has_chain=False), NoVotes())
    assert await without.standing(since=0, until=1) == ChainStanding()
    reading = MarketStanding(index(has_chain=True), NoVotes())
    assert await reading.standing(since=0, until=1) is None
    assert reading.provider_of(NODE) == ProviderStanding()
    assert reading.terms_of(NODE) == ()


async def test_what_is_final_counts_for_an_era_and_what_is_newest_is_shown() -> None:
    known = index(has_chain=True)
    known.built, known.is_complete = ChainView(depth=1, start_block=0), True
    known.built.final, known.built.latest = MarketState(), market(attested(TOPIC_SPECIFICATIONS, expires_at=99))
    source = MarketStanding(known, NoVotes())
    found = await source.standing(since=0, until=1)
    assert found is not None
    assert found.providers == {}
    assert source.provider_of(NODE) == ProviderStanding(bond_micro=8, attested_until=99)
    assert source.provider_of(NodeId("0x" + "4" * 40)) == ProviderStanding()
