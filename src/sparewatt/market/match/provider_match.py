"""One provider's bid in one attempt: what it sends to which validator, and when. It stores nothing itself.

The commit goes to every validator until that one has closed. The bid itself goes out once commit lists of a quorum are
held, and not before: then nobody can still commit in the light of it. It is sent until lists worth more than a third of
the stake acknowledge it, because a single validator could acknowledge it and then withhold it from the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparewatt.market.match.model import BidderContext, BidderOutput, BidState
from sparewatt.market.match.signatures import SignatureCheck
from sparewatt.market.quorum import is_quorum, is_some, weight_of
from sparewatt.protocol.contracts.match import CommitList, RevealList
from sparewatt.protocol.contracts.match_messages import (
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedRevealList,
)
from sparewatt.protocol.contracts.reasons import MessageRefusal

RECEIPTS_MAX = 2
"""Lists of one validator and phase: two different ones prove its fault."""
NOT_FINAL = frozenset(
    {
        MessageRefusal.UNBONDED,
        MessageRefusal.NOT_ACTIVE,
        MessageRefusal.BEHIND_CHAIN,
        MessageRefusal.WRONG_ORDER_OR_ATTEMPT,
    }
)
"""Refusals of a commit that may pass while the window is open: also of one that has not seen the order's block yet."""

Receipt = SignedCommitList | SignedRevealList


class ProviderMatch:
    """The caller has stored bid and commit before; after a restart it gives the same again."""

    def __init__(self, context: BidderContext, bid: RevealedBid, commit: SignedCommit, *, resend_ms: int = 150) -> None:
        self.context = context
        self._bid = bid
        self._commit = commit
        self._resend_ms = resend_ms
        self._signatures = SignatureCheck(context.domain, known=context.weights)
        self._voters = sorted(key for key, weight in context.weights.items() if weight > 0)
        self._total = sum(context.weights.values())
        self._receipts: dict[tuple[type[Receipt], str], dict[CommitList | RevealList, Receipt]] = {}
        self._refused: dict[str, int] = {}
        self._place: int | None = None
        self._is_settled = False
        self._resend_at_ms: int | None = None

    # what drives it

    def start(self, now_ms: int) -> BidderOutput:
        self._resend_at_ms = now_ms
        return self.tick(now_ms)

    def receive(self, message: Receipt, *, now_ms: int) -> BidderOutput:
        """A list that a validator gave, its own or another's. Lists that it carries count as well."""
        could_reveal = self.may_reveal
        for carried in message.commit_lists if isinstance(message, SignedRevealList) else ():
            self._keep(carried)
        self._keep(message)
        if self.may_reveal and not could_reveal and not self._is_settled:
            self._resend_at_ms = now_ms
        return self.tick(now_ms)

    def answered(self, vote_key: str, code: int) -> None:
        """A validator's reply to the commit: 0, or why it was refused. It is not asked again what it has decided."""
        self._refused[vote_key.lower()] = code

    def tick(self, now_ms: int) -> BidderOutput:
        out = BidderOutput()
        if self._resend_at_ms is None or now_ms < self._resend_at_ms:
            return out
        if self.may_reveal:
            out.send = [(key, self._bid) for key in self._voters if not self._names_it(SignedRevealList, key)]
        out.send += [(key, self._commit) for key in self._voters if self._wants_commit(key)]
        self._resend_at_ms = now_ms + self._resend_ms if self._has_more_to_say() else None
        return out

    def settled(self, place: int | None) -> None:
        """The chain has spoken: 0 for the winner, 1 and 2 for stand-ins, None for the others."""
        self._place, self._is_settled, self._resend_at_ms = place, True, None

    @property
    def next_tick_ms(self) -> int | None:
        return self._resend_at_ms

    # what it knows

    @property
    def state(self) -> BidState:
        if self._is_settled:
            return {None: BidState.LOST, 0: BidState.WON}.get(self._place, BidState.STANDBY)
        if self._is_acknowledged():
            return BidState.REVEALED
        named = self._weight(key for key in self._voters if self._names_it(SignedCommitList, key))
        if is_quorum(named, total=self._total):
            return BidState.CERTIFIED
        return BidState.COMMITTED if named else BidState.SENT

    @property
    def may_reveal(self) -> bool:
        """Whether commit lists of a quorum are held, whether or not they name this bid."""
        closed = self._weight(key for key in self._voters if self._lists(SignedCommitList, key))
        return is_quorum(closed, total=self._total)

    def receipts(self) -> tuple[Receipt, ...]:
        """The signed lists, which prove what validators acknowledged. Without commits and bids."""
        return tuple(receipt for lists in self._receipts.values() for receipt in lists.values())

    def _keep(self, message: Receipt) -> None:
        if (message.list.order_id, message.list.attempt) != (self.context.order_id, self.context.attempt):
            return
        signer = self._signatures.signer_of(message.list, message.signature)
        if signer is None or self.context.weights.get(signer, 0) <= 0:
            return
        lists = self._receipts.setdefault((type(message), signer), {})
        if len(lists) < RECEIPTS_MAX:
            lists.setdefault(message.list, _bare(message))

    def _lists(self, kind: type[Receipt], key: str) -> Iterable[Receipt]:
        return self._receipts.get((kind, key), {}).values()

    def _names_it(self, kind: type[Receipt], key: str) -> bool:
        return any(self._commit.commit.bid_id in receipt.list.bid_ids for receipt in self._lists(kind, key))

    def _wants_commit(self, key: str) -> bool:
        refused = self._refused.get(key, 0)
        return not self._lists(SignedCommitList, key) and (refused == 0 or refused in NOT_FINAL)

    def _is_acknowledged(self) -> bool:
        return is_some(
            self._weight(key for key in self._voters if self._names_it(SignedRevealList, key)), total=self._total
        )

    def _has_more_to_say(self) -> bool:
        return not self._is_settled and not self._is_acknowledged()

    def _weight(self, keys: Iterable[str]) -> int:
        return weight_of(keys, self.context.weights)


def _bare(message: Receipt) -> Receipt:
    if isinstance(message, SignedCommitList):
        return SignedCommitList(message.list, message.signature, ())
    return SignedRevealList(message.list, message.signature, (), ())
