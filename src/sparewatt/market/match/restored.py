"""What a validator had signed in an attempt before it was restarted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparewatt.market.match.model import AuctionContext, SignedRecord
from sparewatt.protocol.contracts.match_messages import SignedCommitList, SignedRevealList, SignedVote


@dataclass(slots=True)
class RestoredRecords:
    commit_list: SignedCommitList | None = None
    reveal_list: SignedRevealList | None = None
    votes: dict[int, SignedVote] = field(default_factory=dict)
    """By round."""

    @property
    def last_voted(self) -> int:
        return max(self.votes, default=-1)


def restored_records(stored: Sequence[SignedRecord], context: AuctionContext) -> RestoredRecords:
    """Raises ValueError for records of another match, or two of one kind: the write-ahead file is damaged."""
    found = RestoredRecords()
    for record in stored:
        message = record.vote if isinstance(record, SignedVote) else record.list
        if (message.order_id, message.attempt) != (context.order_id, context.attempt):
            raise ValueError("a stored record belongs to another order or attempt")
        match record:
            case SignedCommitList() if found.commit_list is None:
                found.commit_list = record
            case SignedRevealList() if found.reveal_list is None:
                found.reveal_list = record
            case SignedVote() if record.vote.round not in found.votes:
                found.votes[record.vote.round] = record
            case _:
                raise ValueError("two stored records are of one kind: this key signed twice")
    if found.commit_list is None and (found.reveal_list is not None or found.votes):
        raise ValueError("a stored record lacks the commit list that was signed before it")
    if found.reveal_list is None and found.votes:
        raise ValueError("a stored vote lacks the reveal list that was signed before it")
    return found
