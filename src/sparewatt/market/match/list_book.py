"""Commit lists of all validators: who names which bid, and which bids are certified.

All lists of a validator count, also contradictory ones: if the first alone counted, a liar that sends different lists
to different peers would stop the match for ever. Two lists of a validator are kept in any case (they prove its fault),
and a further one only if it names a bid that lists of others worth more than a third of the stake name. An honest
validator is among these and signs one list, so there are few such bids; and no other bid can become certified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparewatt.market.quorum import is_quorum, is_some, weight_of
from sparewatt.protocol.contracts.match import CommitList
from sparewatt.protocol.contracts.match_messages import ITEMS_MAX, SignedCommitList, list_digest

PROOF_LISTS = 2
FURTHER_LISTS_MAX = ITEMS_MAX - PROOF_LISTS * 32
"""Of all validators together, so that all lists fit into one message."""


class CommitListBook:
    """Holds lists without their commits."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self.total = sum(weights.values())
        self._lists: dict[str, dict[CommitList, tuple[bytes, SignedCommitList]]] = {}
        self._further = 0
        self._proof_namers: dict[bytes, set[str]] = {}
        self._namers: dict[bytes, set[str]] = {}
        self.certified: set[bytes] = set()

    def take(self, signed: SignedCommitList, *, signer: str) -> bool:
        """Whether the list is kept now."""
        lists = self._lists.setdefault(signer, {})
        if signed.list in lists:
            return False
        is_proof = len(lists) < PROOF_LISTS
        if not is_proof:
            if self._further >= FURTHER_LISTS_MAX or not self._certifies_more(signed, signer):
                return False
            self._further += 1
        bare = SignedCommitList(signed.list, signed.signature, ())
        lists[signed.list] = list_digest(signed.list, signer=signer), bare
        for bid_id in signed.list.bid_ids:
            self._name(bid_id, signer, is_proof=is_proof)
        return True

    def _certifies_more(self, signed: SignedCommitList, signer: str) -> bool:
        unnamed = (bid_id for bid_id in signed.list.bid_ids if signer not in self._namers.get(bid_id, ()))
        return any(self.is_named_by_some(bid_id, besides=signer) for bid_id in unnamed)

    def is_named_by_some(self, bid_id: bytes, *, besides: str = "") -> bool:
        """Whether an honest validator is among those that name it."""
        namers = self._proof_namers.get(bid_id, set()) - {besides}
        return is_some(weight_of(namers, self._weights), total=self.total)

    def _name(self, bid_id: bytes, signer: str, *, is_proof: bool) -> None:
        if is_proof:
            self._proof_namers.setdefault(bid_id, set()).add(signer)
        namers = self._namers.setdefault(bid_id, set())
        namers.add(signer)
        if is_quorum(weight_of(namers, self._weights), total=self.total):
            self.certified.add(bid_id)

    def is_named(self, bid_id: bytes) -> bool:
        return bid_id in self._namers

    def undecided(self) -> Iterator[bytes]:
        """Bids that can still become certified by lists that have not come."""
        absent = self.total - self.weight
        for bid_id, namers in self._namers.items():
            reachable = weight_of(namers, self._weights) + absent
            if bid_id not in self.certified and is_quorum(reachable, total=self.total):
                yield bid_id

    @property
    def weight(self) -> int:
        """Of the validators that have signed a list."""
        return weight_of(self.signers(), self._weights)

    def signers(self) -> list[str]:
        return [signer for signer, lists in self._lists.items() if lists]

    def lists(self) -> Iterator[tuple[bytes, SignedCommitList]]:
        """With their digests, in the order of vote keys."""
        for signer in sorted(self._lists):
            yield from self._lists[signer].values()
