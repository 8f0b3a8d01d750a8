"""What a validator holds of the vote on one epoch: observations, proposals, votes, and the certificate in them. Pure.

Signatures are checked before anything comes here. Bounded by validators with weight: each has one set of observations,
the votes of its newest rounds, and a proposal in each of the rounds ahead that it leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparewatt.market.quorum import is_quorum, is_some
from sparewatt.market.snapshots.model import SnapshotCertificate, SnapshotDoubleSign
from sparewatt.protocol.contracts.match import ReputationSnapshot
from sparewatt.protocol.contracts.snapshot_messages import SignedObservations, SignedSnapshot, SnapshotProposal

ROUNDS_KEPT = 8
"""Votes of one validator: of its newest rounds. Proposals: of that many rounds ahead."""


@dataclass(slots=True)
class EpochVotes:
    epoch: int
    observations: dict[str, SignedObservations] = field(default_factory=dict)
    """By vote key: the first that came. A proposal carries those that it used."""
    votes: dict[str, dict[int, SignedSnapshot]] = field(default_factory=dict)
    """By vote key and round."""
    proposals: dict[int, SnapshotProposal] = field(default_factory=dict)
    """By round: the first of its leader."""

    def observed_by(self, weights: Mapping[str, int]) -> int:
        """The weight of those that published."""
        return sum(weights.get(signer, 0) for signer in self.observations)

    def add_vote(self, signer: str, vote: SignedSnapshot) -> bool:
        """Whether it is new. The first vote of a round stays."""
        own = self.votes.setdefault(signer, {})
        if vote.snapshot.round in own:
            return False
        own[vote.snapshot.round] = vote
        if len(own) > ROUNDS_KEPT:
            del own[min(own)]
        return vote.snapshot.round in own

    def double_sign(self, signer: str, vote: SignedSnapshot) -> SnapshotDoubleSign | None:
        """The fault that this vote proves with one that is held."""
        first = self.votes.get(signer, {}).get(vote.snapshot.round)
        if first is None or first.snapshot == vote.snapshot:
            return None
        return SnapshotDoubleSign(signer, first, vote)

    def add_proposal(self, proposal: SnapshotProposal, *, round_: int) -> bool:
        """Whether it is new and of the current round or one of the next."""
        of_round = proposal.vote.snapshot.round
        if of_round in self.proposals or not round_ <= of_round < round_ + ROUNDS_KEPT:
            return False
        self.proposals[of_round] = proposal
        return True

    def forget_proposals(self, *, before: int) -> None:
        for round_ in [each for each in self.proposals if each < before]:
            del self.proposals[round_]

    def votes_of(self, round_: int) -> list[SignedSnapshot]:
        return [own[round_] for own in self.votes.values() if round_ in own]

    def reached(self, weights: Mapping[str, int]) -> int:
        """The highest round in which, or after which, validators worth more than a third have voted; -1 for none."""
        total = sum(weights.values())
        newest = sorted(((max(own), weights.get(signer, 0)) for signer, own in self.votes.items() if own), reverse=True)
        together = 0
        for round_, weight in newest:
            together += weight
            if is_some(together, total=total):
                return round_
        return -1

    def certificate(self, weights: Mapping[str, int]) -> SnapshotCertificate | None:
        """The votes of a quorum for one table in one round, by the weights given."""
        total = sum(weights.values())
        cast: dict[ReputationSnapshot, list[tuple[str, SignedSnapshot]]] = {}
        for signer, own in self.votes.items():
            for vote in own.values() if weights.get(signer) else ():
                cast.setdefault(vote.snapshot, []).append((signer, vote))
        for snapshot, votes in cast.items():
            if is_quorum(sum(weights[signer] for signer, _ in votes), total=total):
                votes.sort(key=lambda each: int(each[0], 16))
                signers, signed = zip(*votes, strict=True)
                return SnapshotCertificate(snapshot, signed, signers)
        return None
