from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.certificate_check import counted_votes, has_its_candidates, has_quorum
from tests.unit.leasing.relay.auction import DOMAIN, PROVIDERS, STRANGER, VOTE_KEYS, WEIGHTS, Auction

AUCTION = Auction()
TRUE = AUCTION.certificate()


def test_votes_count_once_by_who_signed_them() -> None:
    doubled = replace(TRUE, votes=(*TRUE.votes, *TRUE.votes, AUCTION.vote(STRANGER)))
    assert list(counted_votes(doubled, WEIGHTS, DOMAIN)) == [each.address for each in VOTE_KEYS]


@pytest.mark.parametrize(("voters", "expected"), [(4, True), (3, True), (2, False), (0, False)])
def test_a_quorum_is_more_than_two_thirds(voters: int, *, expected: bool) -> None:
    assert has_quorum(AUCTION.certificate(voters=voters), WEIGHTS, DOMAIN) is expected


def test_exactly_two_thirds_are_no_quorum() -> None:
    thirds: dict[str, int] = {each.address: 100 for each in VOTE_KEYS[:3]}
    assert not has_quorum(AUCTION.certificate(voters=2), thirds, DOMAIN)


def test_votes_of_another_round_task_or_domain_do_not_count() -> None:
    assert counted_votes(replace(TRUE, round=3), WEIGHTS, DOMAIN) == {}
    assert counted_votes(replace(TRUE, task=replace(TRUE.task, bid_count=9)), WEIGHTS, DOMAIN) == {}
    assert counted_votes(TRUE, WEIGHTS, replace(DOMAIN, chain_id=1)) == {}
    broken = replace(TRUE, votes=(replace(TRUE.votes[0], signature=bytes(65)),))
    assert counted_votes(broken, WEIGHTS, DOMAIN) == {}


def test_candidates_are_those_of_the_voted_tree() -> None:
    assert has_its_candidates(TRUE)
    assert has_its_candidates(Auction(prices={}).certificate())
    assert not has_its_candidates(replace(TRUE, leaves=tuple(reversed(TRUE.leaves))))
    assert not has_its_candidates(replace(TRUE, leaves=(replace(TRUE.leaves[0], price_uusd=1), TRUE.leaves[1])))
    assert not has_its_candidates(
        replace(TRUE, leaves=(replace(TRUE.leaves[0], provider=PROVIDERS[2]), TRUE.leaves[1]))
    )
    assert not has_its_candidates(replace(TRUE, leaves=TRUE.leaves[:1], paths=TRUE.paths[:1], commits=TRUE.commits[:1]))
