"""How often each validator voted, and whether for what the chain accepted. Pure.

Certificates need no word of a validator: who may vote and who signed are both on the chain. But a quorum is enough for
a certificate, and whoever submits it chooses the votes, so a vote that is not in it may have been given all the same.
Signed votes that a gateway has collected tell these apart for the newest matches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sparewatt.market.chain_records import MarketState, VoteWeight, VotingRecord


@dataclass(frozen=True, slots=True)
class CertificateVotes:
    """Of one accepted certificate, with candidates or without."""

    voters: Iterable[VoteWeight]
    """Everybody with weight at the attempt's stake version."""
    signers: Collection[str]
    """Vote keys."""
    accepted_at: int


def count_votes(records: dict[str, VotingRecord], certificate: CertificateVotes) -> None:
    """Add a certificate to the records, which are by operator. A signer without weight counts for nobody."""
    for voter in certificate.voters:
        old = records.get(voter.operator, VotingRecord())
        signed = voter.vote_key in certificate.signers
        records[voter.operator] = VotingRecord(
            certificates=old.certificates + 1,
            votes=old.votes + signed,
            last_vote_at=certificate.accepted_at if signed else old.last_vote_at,
        )


@dataclass(frozen=True, slots=True)
class CollectedVotes:
    """Of one attempt: vote keys with the digests for which they voted. Their signatures were checked."""

    order_id: str
    attempt: int
    votes: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RecentVotes:
    """Of one validator, in attempts with an accepted certificate."""

    agreed: int = 0
    """For what the chain accepted."""
    differed: int = 0
    """For another result only; an honest validator may do that in a round that came to nothing."""
    missed: int = 0
    """No vote is known."""


def count_recent(state: MarketState, collected: Iterable[CollectedVotes]) -> dict[str, RecentVotes]:
    """By operator. Attempts without an accepted certificate, or that are forgotten, are left out."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for match in collected:
        order = state.orders.get(match.order_id)
        certificate = order.certificate if order is not None else None
        if order is None or certificate is None or certificate.attempt != match.attempt:
            continue
        if order.stake_version not in state.totals:
            continue
        accepted = {(signer, _digest(certificate.record.task_hash)) for signer in certificate.signers}
        votes = accepted.union(match.votes)
        for voter in state.weights_at(order.stake_version):
            counts[voter.operator][_verdict(voter.vote_key, votes, _digest(certificate.record.task_hash))] += 1
    return {operator: RecentVotes(**counted) for operator, counted in counts.items()}


def votes_between(
    state: MarketState, collected: Iterable[CollectedVotes], *, since: int, until: int
) -> dict[str, tuple[int, int]]:
    """By operator: votes for what the chain accepted in that time, and how many were due."""
    known = {(match.order_id, match.attempt): match.votes for match in collected}
    counts: dict[str, tuple[int, int]] = {}
    for order in state.orders.values():
        certificate = order.certificate
        if (
            certificate is None
            or not since <= certificate.accepted_at < until
            or order.stake_version not in state.totals
        ):
            continue
        accepted = _digest(certificate.record.task_hash)
        votes = {(signer, accepted) for signer in certificate.signers}.union(
            known.get((order.order_id, certificate.attempt), ())
        )
        for voter in state.weights_at(order.stake_version):
            given, due = counts.get(voter.operator, (0, 0))
            counts[voter.operator] = (given + ((voter.vote_key, accepted) in votes), due + 1)
    return counts


def _digest(task_hash: bytes) -> str:
    return "0x" + task_hash.hex()


def _verdict(vote_key: str, votes: Collection[tuple[str, str]], accepted: str) -> str:
    if (vote_key, accepted) in votes:
        return "agreed"
    return "differed" if any(key == vote_key for key, _ in votes) else "missed"
