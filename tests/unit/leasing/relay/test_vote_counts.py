"""Votes of the newest matches are read and counted once for all who ask."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.core.errors import NoChain
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay.evidence import SeenVote
from sparewatt.leasing.relay.vote_counts import COUNT_AGAIN_S, MATCHES_COUNTED, RecentVoteCounts
from sparewatt.market.voting_record import RecentVotes
from sparewatt.store.lease_matches import StoredVotes
from sparewatt.testing.clocks import ManualClock
from tests.unit.leasing.test_market_index import MemoryEvents
from tests.unit.market.market_events import OPERATOR, ORDER, VOTE_KEY, in_blocks, lookup, no_match, weighed

EVENTS = [weighed(VOTE_KEY, version=1, weight=9, total=9), weighed(VOTE_KEY, version=2, weight=9, total=9)]


def encoded(*votes: SeenVote) -> str:
    return msgspec.json.encode(votes).decode()


class MemoryVotes:
    def __init__(self, *rows: StoredVotes) -> None:
        self.rows = rows
        self.limits: list[int] = []

    async def list_votes(self, *, limit: int) -> list[StoredVotes]:
        self.limits.append(limit)
        return list(self.rows)


async def following(*, has_chain: bool = True) -> MarketIndex:
    source = MemoryEvents(depth=1)
    source.index(in_blocks([*EVENTS, lookup(), no_match()]), to_block=4)
    index = MarketIndex(source, has_chain=has_chain)
    await index.follow()
    return index


async def test_stored_votes_are_counted_by_operator() -> None:
    votes = MemoryVotes(StoredVotes(ORDER, 0, encoded(SeenVote(VOTE_KEY, 0, "0x12"))))
    counts = RecentVoteCounts(index=await following(), matches=votes, clock=ManualClock())
    assert await counts.recent() == {OPERATOR: RecentVotes(agreed=1)}, "its vote is in the certificate"
    assert votes.limits == [MATCHES_COUNTED]


async def test_a_count_is_shared_for_a_while() -> None:
    votes, clock = MemoryVotes(), ManualClock()
    counts = RecentVoteCounts(index=await following(), matches=votes, clock=clock)
    assert await counts.recent() == await counts.recent() == {}
    assert len(votes.limits) == 1
    votes.rows = (StoredVotes(ORDER, 0, "[]"),)
    clock.advance(COUNT_AGAIN_S)
    assert await counts.recent() == {OPERATOR: RecentVotes(agreed=1)}


async def test_without_a_chain_nothing_is_read() -> None:
    votes = MemoryVotes()
    counts = RecentVoteCounts(index=await following(has_chain=False), matches=votes, clock=ManualClock())
    with pytest.raises(NoChain):
        await counts.recent()
    assert votes.limits == []
