"""Everything that a validator holds of one match, the messages that it makes of it, and what a peer lacks of it.

Whoever sent a message does not matter: signatures and hashes do. A message is taken as far as it proves itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TypeAlias

from sparewatt.market.match.ballots import Ballots, ProposedTask
from sparewatt.market.match.commit_phase import TAKEN, CommitPhase
from sparewatt.market.match.model import AuctionContext, MatchNote, StandingOf
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.match.reveal_phase import RevealPhase
from sparewatt.market.match.rounds import Rounds
from sparewatt.market.match.signatures import SignatureCheck
from sparewatt.market.rule import bid_id_of
from sparewatt.protocol.contracts.match import CommitList, RevealList
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    MatchStatus,
    MissingBids,
    Proposal,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.contracts.message_ranges import LIST_MAX
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.typed_message import TypedMessage

ValidatorMessage: TypeAlias = SignedCommitList | SignedRevealList | MissingBids | SignedVote | Proposal | MatchStatus
REPLIES_MAX = 64
"""Lists in the answer to one status; what is still missing comes with the next."""


class MatchHoldings:
    def __init__(self, context: AuctionContext, *, standing: StandingOf, rounds: Rounds) -> None:
        self.context = context
        self._signatures = SignatureCheck(
            context.domain, known=frozenset(context.weights) | frozenset(context.node_keys.values())
        )
        self.commits = CommitPhase(context, self._signatures, standing)
        self.reveals = RevealPhase(context, self.commits)
        self.ballots = Ballots(context, self.commits)
        self.rounds = rounds

    @property
    def change_count(self) -> int:
        """Grows whenever a bid could have become certified or revealed."""
        return len(self.commits.book.certified) + self.commits.taken_count + self.reveals.bid_count

    # taking

    def voter_of(self, message: TypedMessage, signature: bytes) -> str | None:
        """The validator with weight that signed, or None."""
        signer = self._signatures.signer_of(message, signature)
        return signer if signer is not None and self.context.weights.get(signer, 0) > 0 else None

    def take(self, message: ValidatorMessage) -> int:
        """The code of the refusal, or 0."""
        match message:
            case SignedCommitList():
                return self.take_commit_list(message)
            case SignedRevealList():
                return self.take_reveal_list(message)
            case MissingBids():
                return self.take_reveal_list(message.reveal_list)
            case SignedVote():
                return self.take_vote(message)
            case Proposal():
                return self.take_proposal(message)
            case MatchStatus():
                return self.take_status(message)

    def take_commit_list(self, signed: SignedCommitList) -> int:
        signer, code = self._signer_of_list(signed.list, signed.signature)
        if signer is not None:
            self.commits.take_lists([(signer, signed)])
        return code

    def take_reveal_list(self, signed: SignedRevealList) -> int:
        signer, code = self._signer_of_list(signed.list, signed.signature)
        if signer is None:
            return code
        self._take_carried(signed.commit_lists)
        for revealed in signed.bids:
            self.reveals.take(revealed)
        self.reveals.take_list(signed, signer=signer)
        return TAKEN

    def take_vote(self, signed: SignedVote) -> int:
        signer = self.voter_of(signed.vote, signed.signature)
        if signer is None:
            return MessageRefusal.BAD_SIGNATURE
        code = self.ballots.take_vote(signed, signer=signer, current=self.rounds.current)
        if code == TAKEN:
            self.rounds.note(signer, signed.vote.round)
        return code

    def take_proposal(self, proposal: Proposal) -> int:
        signer = self.voter_of(proposal.vote.vote, proposal.vote.signature)
        if signer is None:
            return MessageRefusal.BAD_SIGNATURE
        code = self.ballots.take_proposal(proposal, signer=signer, current=self.rounds.current)
        if code == TAKEN:
            self.rounds.note(signer, proposal.vote.vote.round)
            self._take_carried(proposal.commit_lists)
            self.commits.take_relayed(proposal.commits)
            for revealed in proposal.bids:
                self.reveals.take(revealed)
        return code

    def take_status(self, status: MatchStatus) -> int:
        if (status.reached.order_id, status.reached.attempt) != (self.context.order_id, self.context.attempt):
            return MessageRefusal.WRONG_ORDER_OR_ATTEMPT
        signer = self.voter_of(status.reached, status.signature)
        if signer is None:
            return MessageRefusal.BAD_SIGNATURE
        self.rounds.note(signer, status.reached.round)
        return TAKEN

    def take_record(self, record: AuctionRecord) -> None:
        """The own one of before a restart. Like anyone's messages, it counts as far as it proves itself."""
        self._take_carried(record.commit_lists)
        self.commits.take_relayed(record.commits)
        for revealed in record.reveals:
            self.reveals.take(revealed)
        for decline in record.declines:
            self.commits.take_decline(decline)
        signed: tuple[ValidatorMessage, ...] = (*record.reveal_lists, *record.proposals, *record.votes)
        for message in signed:
            self.take(message)

    def _take_carried(self, lists: Iterable[SignedCommitList]) -> None:
        signed_by = [(self._signer_of_list(each.list, each.signature)[0], each) for each in lists]
        self.commits.take_lists([(signer, each) for signer, each in signed_by if signer is not None])

    def _signer_of_list(self, signed: CommitList | RevealList, signature: bytes) -> tuple[str | None, int]:
        if (signed.order_id, signed.attempt) != (self.context.order_id, self.context.attempt):
            return None, MessageRefusal.WRONG_ORDER_OR_ATTEMPT
        if not _is_list(signed.bid_ids):
            return None, MessageRefusal.OUT_OF_RANGE
        signer = self.voter_of(signed, signature)
        return signer, TAKEN if signer is not None else MessageRefusal.BAD_SIGNATURE

    # making

    def commit_list(self, signed: SignedCommitList) -> SignedCommitList:
        """With its commits, as far as they are known."""
        commits = self.commits.commits_of(signed.list.bid_ids)
        return SignedCommitList(signed.list, signed.signature, tuple(commits))

    def commit_lists(self) -> Iterator[SignedCommitList]:
        """All of them; a commit is with the first list that names it."""
        carried: set[bytes] = set()
        for _, signed in self.commits.book.lists():
            commits = self.commits.commits_of(set(signed.list.bid_ids) - carried)
            carried.update(signed.list.bid_ids)
            yield SignedCommitList(signed.list, signed.signature, tuple(commits))

    def reveal_list(self, signed: SignedRevealList, *, with_lists: bool) -> SignedRevealList:
        bids = self.reveals.bids_of(signed.list.bid_ids)
        lists = tuple(self.commit_lists()) if with_lists else ()
        return SignedRevealList(signed.list, signed.signature, bids, lists)

    def proposal(self, proposed: ProposedTask) -> Proposal:
        bid_ids = [bid_id_of(bid) for bid in proposed.bids()]
        return Proposal(
            vote=proposed.vote,
            task=proposed.task,
            leaves=proposed.book.leaves,
            bids=self.reveals.bids_of(bid_ids),
            commits=tuple(self.commits.commits_of(bid_ids)),
            commit_lists=tuple(signed for _, signed in self.commits.book.lists()),
        )

    def record(self, *, validator: str, notes: Sequence[MatchNote], with_bids: bool) -> AuctionRecord:
        commit_lists = tuple(signed for _, signed in self.commits.book.lists())
        bid_ids = [bid_id for signed in commit_lists for bid_id in signed.list.bid_ids]
        bid_ids += [signed.commit.bid_id for signed in self.commits.held.values()]
        proposed = [
            *(Proposal(each.vote, each.task, each.book.leaves, (), (), ()) for each in self.ballots.all_proposed()),
            *self.ballots.spoiled(),
        ]
        return AuctionRecord(
            context=self.context,
            validator=validator,
            commits=(*self.commits.commits_of(bid_ids), *self.commits.second_commits.values()),
            declines=tuple(self.commits.declined.values()),
            commit_lists=commit_lists,
            reveals=self.reveals.bids() if with_bids else (),
            reveal_lists=tuple(signed for _, signed in self.reveals.lists()),
            proposals=tuple(proposed) if with_bids else (),
            votes=tuple(self.ballots.votes()),
            notes=tuple(notes),
        )

    def complete_digests(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Of the lists whose commits, or certified bids, are known too: a relay may have left them out."""
        commit_lists = (digest for digest, each in self.commits.book.lists() if self.commits.is_complete(each.list))
        reveal_lists = (digest for digest, each in self.reveals.lists() if self.reveals.is_complete(each.list))
        return tuple(commit_lists), tuple(reveal_lists)

    def lacked_by(self, status: MatchStatus, *, certified: ProposedTask | None) -> list[MatchMessage]:
        """What the sender of a status does not have."""
        lacked: list[MatchMessage] = []
        if certified is not None:
            lacked += [*self.ballots.votes_for(certified).values(), self.proposal(certified)]
        elif not any(status.task_hash):
            lacked += [self.proposal(each) for each in self.ballots.proposed(status.reached.round)[:1]]
        return [*lacked, *islice(self._lists_lacked_by(status), REPLIES_MAX)]

    def _lists_lacked_by(self, status: MatchStatus) -> Iterator[MatchMessage]:
        has = {*status.commit_lists, *status.reveal_lists}
        for digest, commits in self.commits.book.lists():
            if digest not in has:
                yield self.commit_list(commits)
        for digest, reveals in self.reveals.lists():
            if digest not in has:
                yield self.reveal_list(reveals, with_lists=False)


def _is_list(bid_ids: Sequence[bytes]) -> bool:
    return len(bid_ids) <= LIST_MAX and all(left < right for left, right in pairwise(bid_ids))
