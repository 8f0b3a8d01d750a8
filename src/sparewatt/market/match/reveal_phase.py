"""The second window of an auction: the bids behind the commits, and which of them a validator acknowledges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparewatt.core.errors import InvalidField
from sparewatt.market.coverage import covers
from sparewatt.market.match.commit_phase import CommitPhase
from sparewatt.market.match.model import AuctionContext
from sparewatt.market.quorum import is_quorum, is_some, weight_of
from sparewatt.protocol.contracts.match import RevealList
from sparewatt.protocol.contracts.match_messages import RevealedBid, SignedRevealList, list_digest
from sparewatt.protocol.contracts.message_ranges import LEAVES_END, LIST_MAX, require_in_range
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.typed_message import struct_hash

TAKEN = 0
LISTS_MAX = 2
"""Of one validator: two different ones prove its fault, and only one's own decides over a vote."""


class RevealPhase:
    """Bodies are bound by the hash that was committed, so it does not matter who sends them."""

    def __init__(self, context: AuctionContext, commits: CommitPhase) -> None:
        self._context = context
        self._commits = commits
        self._bids: dict[bytes, RevealedBid] = {}
        self._ids: dict[RevealedBid, bytes] = {}
        self._lists: dict[str, dict[RevealList, tuple[bytes, SignedRevealList]]] = {}
        self.total = sum(context.weights.values())

    def is_known(self, revealed: RevealedBid) -> bool:
        return revealed in self._ids

    def take(self, revealed: RevealedBid) -> int:
        """The code of the refusal, or 0."""
        return TAKEN if revealed in self._ids else self._take_new(revealed)

    def _take_new(self, revealed: RevealedBid) -> int:
        bid = revealed.bid
        if (bid.order_id, bid.attempt) != (self._context.order_id, self._context.attempt):
            return MessageRefusal.WRONG_ORDER_OR_ATTEMPT
        try:
            for message in (bid, revealed.terms, revealed.specification):
                require_in_range(message)
        except InvalidField:
            return MessageRefusal.OUT_OF_RANGE
        bid_id, provider = struct_hash(bid), bid.provider.lower()
        if code := self._not_committed(bid_id, provider):
            return code
        if not self._is_covered(revealed):
            return MessageRefusal.TERMS
        if bid_id not in self._bids:
            self._bids[bid_id], self._ids[revealed] = revealed, bid_id
            self._commits.set_owner(bid_id, provider)
        return TAKEN

    def _not_committed(self, bid_id: bytes, provider: str) -> int:
        held = self._commits.held.get(provider)
        if held is not None and held.commit.bid_id == bid_id:
            return TAKEN
        if self._commits.book.is_named_by_some(bid_id):
            return TAKEN
        return MessageRefusal.UNCERTIFIED if held is None else MessageRefusal.REVEAL_MISMATCH

    def _is_covered(self, revealed: RevealedBid) -> bool:
        return (
            struct_hash(revealed.terms) == revealed.bid.terms_hash
            and struct_hash(revealed.specification) == self._context.spec_hash
            and covers(revealed.specification, revealed.terms, self._context.terms)
        )

    def take_list(self, signed: SignedRevealList, *, signer: str) -> bool:
        """Whether the list is kept now."""
        lists = self._lists.setdefault(signer, {})
        if signed.list in lists or len(lists) >= LISTS_MAX:
            return False
        bare = SignedRevealList(signed.list, signed.signature, (), ())
        lists[signed.list] = list_digest(signed.list, signer=signer), bare
        return True

    # what is known

    def bid(self, bid_id: bytes) -> RevealedBid | None:
        return self._bids.get(bid_id)

    def bids_of(self, bid_ids: Iterable[bytes]) -> tuple[RevealedBid, ...]:
        return tuple(self._bids[bid_id] for bid_id in bid_ids if bid_id in self._bids)

    @property
    def bid_count(self) -> int:
        return len(self._bids)

    def bids(self) -> tuple[RevealedBid, ...]:
        return tuple(self._bids[bid_id] for bid_id in sorted(self._bids))

    def is_admitted(self, bid_id: bytes) -> bool:
        """Certified, revealed, committed by the bid's own provider, and in the snapshot."""
        revealed = self._bids.get(bid_id)
        if revealed is None or bid_id not in self._commits.book.certified:
            return False
        provider = revealed.bid.provider.lower()
        return provider in self._context.profiles and self._commits.commit_of(bid_id, provider) is not None

    def admitted(self) -> list[bytes]:
        """One bid per provider; within the fault model there is no second."""
        by_provider: dict[str, bytes] = {}
        for bid_id in sorted(self._commits.book.certified):
            if self.is_admitted(bid_id):
                by_provider.setdefault(self._bids[bid_id].bid.provider.lower(), bid_id)
        ordered = sorted(by_provider, key=self._commits.place_of)
        return [by_provider[provider] for provider in ordered[: LEAVES_END - 1]]

    def unrevealed(self) -> list[bytes]:
        return sorted(bid_id for bid_id in self._commits.book.certified if bid_id not in self._bids)

    def own_list(self) -> RevealList:
        bid_ids = tuple(sorted(self.admitted()[:LIST_MAX]))
        return RevealList(self._context.order_id, self._context.attempt, bid_ids)

    def is_complete(self, reveals: RevealList) -> bool:
        """Whether the certified bids of a list are known."""
        certified = self._commits.book.certified
        return all(bid_id in self._bids for bid_id in reveals.bid_ids if bid_id in certified)

    def everything_is_revealed(self) -> bool:
        """No certified bid is missing, and no other can still become certified by lists that have not come."""
        book = self._commits.book
        if not is_quorum(book.weight, total=book.total):
            return False
        return not self.unrevealed() and next(book.undecided(), None) is None

    def some_have_closed(self) -> bool:
        return is_some(weight_of(self._signers(), self._context.weights), total=self.total)

    def quorum_has_closed(self) -> bool:
        return is_quorum(weight_of(self._signers(), self._context.weights), total=self.total)

    def _signers(self) -> list[str]:
        return [signer for signer, lists in self._lists.items() if lists]

    def lists(self) -> Iterator[tuple[bytes, SignedRevealList]]:
        """With their digests, in the order of vote keys."""
        for signer in sorted(self._lists):
            yield from self._lists[signer].values()
