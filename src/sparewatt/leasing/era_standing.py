"""What the chain says of nodes and validators at the end of an era: bonds, attestations, stake and votes.

The final state of the market's index, and the signed votes that gateways have collected: a certificate carries a quorum
of votes only, and a vote that came too late for it was given all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparewatt.core.ids import NodeId
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay.vote_counts import StoredVoteSource, collected_votes
from sparewatt.ledger.era_draft import ProviderStanding
from sparewatt.ledger.eras import ChainStanding
from sparewatt.market.chain_records import MarketState, ProviderRecord
from sparewatt.market.snapshots.chain_facts import specifications_attested_until
from sparewatt.market.voting_record import CollectedVotes, votes_between
from sparewatt.protocol.api.rewards import ValidatorEraInputs
from sparewatt.trust.lease_record import EndedTerm

MATCHES_READ = 10_000
"""Of one era, the newest: for older ones the certificates alone say who voted."""


@dataclass(frozen=True, slots=True)
class MarketStanding:
    index: MarketIndex
    matches: StoredVoteSource

    async def standing(self, *, since: int, until: int) -> ChainStanding | None:
        """None while the chain is being read."""
        if not self.index.has_chain:
            return ChainStanding()
        if self.index.built is None or not self.index.is_complete:
            return None
        collected = [collected_votes(row) for row in await self.matches.list_votes(limit=MATCHES_READ)]
        return standing_of(self.index.built.final, collected, since=since, until=until)

    def provider_of(self, node_id: NodeId) -> ProviderStanding:
        """By the newest block; empty for a node that is no provider."""
        state = self.index.latest_state()
        record = _record_of(state, node_id) if state is not None else None
        if state is None or record is None:
            return ProviderStanding()
        return ProviderStanding(_bond(state, record.provider), specifications_attested_until(record))

    def terms_of(self, node_id: NodeId) -> Sequence[EndedTerm]:
        """Its terms of leases that are over."""
        state = self.index.latest_state()
        record = _record_of(state, node_id) if state is not None else None
        return () if state is None or record is None else state.ended_terms.get(record.provider, ())


def _record_of(state: MarketState, node_id: NodeId) -> ProviderRecord | None:
    return next((record for record in state.providers.values() if record.node_key == node_id), None)


def standing_of(state: MarketState, collected: Iterable[CollectedVotes], *, since: int, until: int) -> ChainStanding:
    """By the final state at the end of an era, or soon after."""
    votes = votes_between(state, collected, since=since, until=until)
    providers = {
        NodeId(record.node_key): ProviderStanding(
            bond_micro=_bond(state, record.provider), attested_until=specifications_attested_until(record)
        )
        for record in state.providers.values()
        if record.node_key is not None
    }
    validators = [
        ValidatorEraInputs(
            operator=each.operator,
            stake_micro=each.stake_uusd,
            votes=votes.get(each.operator, (0, 0))[0],
            due=votes.get(each.operator, (0, 0))[1],
            jailed=each.is_jailed,
        )
        for each in state.validators.values()
        if each.stake_uusd or each.operator in votes
    ]
    return ChainStanding(providers, validators)


def _bond(state: MarketState, provider: str) -> int:
    """Without what is on its way out."""
    bond = state.bonds.get(provider)
    return 0 if bond is None else bond.free_uusd + bond.locked_uusd
