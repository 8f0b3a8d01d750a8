"""How validators voted in the newest matches, counted from the signed votes that gateways have stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay.evidence import SeenVote
from sparewatt.market.voting_record import CollectedVotes, RecentVotes, count_recent
from sparewatt.store.lease_matches import StoredVotes

MATCHES_COUNTED = 100
COUNT_AGAIN_S = 3.0
"""A count is shared by everybody who asks within this time: it reads up to 100 rows."""


class StoredVoteSource(Protocol):
    """Implemented by LeaseMatchStore."""

    async def list_votes(self, *, limit: int) -> Sequence[StoredVotes]: ...


@dataclass(slots=True, kw_only=True)
class RecentVoteCounts:
    index: MarketIndex
    matches: StoredVoteSource
    clock: Clock
    _counts: Mapping[str, RecentVotes] = field(default_factory=dict, init=False)
    _counted_s: float | None = field(default=None, init=False)

    async def recent(self) -> Mapping[str, RecentVotes]:
        """By operator. Raises StoreUnavailable, and what `MarketIndex.view` raises."""
        state, now_s = self.index.view().latest, self.clock.now_s()
        if self._counted_s is None or now_s - self._counted_s >= COUNT_AGAIN_S:
            self._counted_s = now_s
            rows = await self.matches.list_votes(limit=MATCHES_COUNTED)
            self._counts = count_recent(state, map(collected_votes, rows))
        return self._counts


def collected_votes(row: StoredVotes) -> CollectedVotes:
    votes = msgspec.json.decode(row.votes, type=list[SeenVote])
    return CollectedVotes(row.order_id, row.attempt, [(vote.validator, vote.task_hash) for vote in votes])
