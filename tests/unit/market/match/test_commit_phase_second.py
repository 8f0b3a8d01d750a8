"""A second commit of a provider is refused, and kept as the proof of its fault."""

from __future__ import annotations

import pytest

from sparewatt.market.faults import MarketFault, find_faults
from sparewatt.market.match import commit_phase
from sparewatt.market.match.commit_phase import CommitPhase
from sparewatt.market.match.evidence_pool import EvidencePool
from sparewatt.market.match.model import BidderStanding
from sparewatt.market.match.signatures import SignatureCheck
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.signing import SigningKey
from tests.market_network.by_hand import USD, HandMatch


@pytest.fixture
def match() -> HandMatch:
    return HandMatch.of({0: 2 * USD, 1: USD})


@pytest.fixture
def phase(match: HandMatch) -> CommitPhase:
    context = match.cast.context
    known = {*context.weights, *context.node_keys.values()}
    return CommitPhase(context, SignatureCheck(context.domain, known=known), lambda _: BidderStanding.GOOD)


def test_two_commits_prove_the_fault_whoever_holds_them(match: HandMatch, phase: CommitPhase) -> None:
    first, second = match.commit(0), match.commit(0, 5)
    assert phase.take(first) == 0
    phase.is_open = False
    assert [phase.take(second), phase.take(second)] == [MessageRefusal.DUPLICATE] * 2
    assert phase.own_list().bid_ids == (first.commit.bid_id,)
    pool = EvidencePool(match.cast.context).add_all([*phase.held.values(), *phase.second_commits.values()])
    (fault,) = find_faults(pool, indices={})
    assert (fault.fault, fault.culprits) == (MarketFault.TWO_COMMITS, (match.cast.providers[0].address,))


def test_nobody_else_can_put_a_second_commit_into_a_providers_mouth(match: HandMatch, phase: CommitPhase) -> None:
    phase.take(match.commit(0))
    assert phase.take(match.commit(0, 5, key=SigningKey(b"\x66" * 32))) == MessageRefusal.BAD_SIGNATURE
    assert phase.second_commits == {}


def test_only_so_many_are_kept(match: HandMatch, phase: CommitPhase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_phase, "LIST_MAX", 1)
    phase.take(match.commit(0))
    for price in range(5, 9):
        phase.take(match.commit(0, price))
    assert len(phase.second_commits) == 1
