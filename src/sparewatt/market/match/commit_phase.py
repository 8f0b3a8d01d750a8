"""The first window of an auction: which commits a validator takes, and when it closes.

Commits are hashes; nothing here depends on a price. What other validators list is learned as well, since their lists
certify bids that came too late here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sparewatt.market.match.list_book import CommitListBook
from sparewatt.market.match.model import AuctionContext, BidderStanding, StandingOf
from sparewatt.market.match.signatures import SignatureCheck
from sparewatt.market.quorum import is_some, weight_of
from sparewatt.market.rule import status_of
from sparewatt.protocol.contracts.match import CommitList
from sparewatt.protocol.contracts.match_messages import SignedCommit, SignedCommitList, SignedDecline
from sparewatt.protocol.contracts.message_ranges import LIST_MAX
from sparewatt.protocol.contracts.reasons import BidStatus, MessageRefusal
from sparewatt.protocol.signing import keccak256

TAKEN = 0
SAME_ID_MAX = 8
"""Commits with one bid id: others may copy the id of a bid, until its body shows whose it is."""


class CommitPhase:
    """`held` are the commits of this validator's own list, one per provider."""

    def __init__(self, context: AuctionContext, signatures: SignatureCheck, standing: StandingOf) -> None:
        self._context = context
        self._signatures = signatures
        self._standing = standing
        self.book = CommitListBook(context.weights)
        self.is_open = True
        self.held: dict[str, SignedCommit] = {}
        self.declined: dict[str, SignedDecline] = {}
        self.second_commits: dict[str, SignedCommit] = {}
        """Of providers that committed to another bid before: not listed, but a proof of their fault."""
        self.taken_count = 0
        """Grows with every commit that is new here."""
        self._learned: dict[bytes, dict[str, SignedCommit]] = {}
        self._owners: dict[bytes, str] = {}
        self._awaited = {provider for provider in context.profiles if self._may_win(provider)}

    def _may_win(self, provider: str) -> bool:
        return provider in self._context.node_keys and self._is_eligible(provider)

    def _is_eligible(self, provider: str) -> bool:
        """By its profile: every check but that of the price."""
        profile = self._context.profiles[provider]
        return status_of(self._context.terms, profile, price_uusd=0) is BidStatus.ELIGIBLE

    # what comes from providers

    def take(self, signed: SignedCommit) -> int:
        """The code of the refusal, or 0. The same commit again is acknowledged again."""
        provider = signed.commit.provider.lower()
        if code := self._refusal(signed, provider):
            if code == MessageRefusal.DUPLICATE and len(self.second_commits) < LIST_MAX:
                self.second_commits.setdefault(provider, signed)
            return code
        if provider not in self.held:
            self.held[provider] = signed
            self.taken_count += 1
            self._awaited.discard(provider)
            if len(self.held) > LIST_MAX and self._drop_last() == provider:
                return MessageRefusal.FULL
        return TAKEN

    def _refusal(self, signed: SignedCommit, provider: str) -> int:
        if code := self._forgery(signed, provider):
            return code
        if (held := self.held.get(provider)) is not None:
            return TAKEN if held.commit.bid_id == signed.commit.bid_id else MessageRefusal.DUPLICATE
        standing = self._standing(provider)
        if standing in (BidderStanding.NOT_REGISTERED, BidderStanding.NOT_ACTIVE):
            return standing
        if provider not in self._context.profiles:
            return MessageRefusal.NOT_IN_SNAPSHOT
        if standing is not BidderStanding.GOOD:
            return standing
        return TAKEN if self.is_open else MessageRefusal.LATE

    def _forgery(self, signed: SignedCommit | SignedDecline, provider: str) -> int:
        message = signed.commit if isinstance(signed, SignedCommit) else signed.decline
        if (message.order_id, message.attempt) != (self._context.order_id, self._context.attempt):
            return MessageRefusal.WRONG_ORDER_OR_ATTEMPT
        node_key = self._context.node_keys.get(provider)
        if node_key is None:
            return MessageRefusal.NOT_REGISTERED
        if self._signatures.signer_of(message, signed.signature) != node_key:
            return MessageRefusal.BAD_SIGNATURE
        return TAKEN

    def _drop_last(self) -> str:
        """Rewards neither speed nor ineligible profiles: nobody gains by being first."""
        last = max(self.held, key=self.place_of)
        del self.held[last]
        return last

    def place_of(self, provider: str) -> tuple[bool, bytes]:
        """Who stays when there are too many."""
        ineligible = provider not in self._context.profiles or not self._is_eligible(provider)
        return ineligible, keccak256(self._context.order_id + bytes.fromhex(provider[2:]))

    def take_decline(self, signed: SignedDecline) -> int:
        provider = signed.decline.provider.lower()
        if code := self._forgery(signed, provider):
            return code
        self.declined.setdefault(provider, signed)
        self._awaited.discard(provider)
        return TAKEN

    # what comes from validators

    def take_lists(self, lists: Iterable[tuple[str, SignedCommitList]]) -> bool:
        """Lists with their signers; whether one of them is new. While the window is open, their commits are taken.

        A list that certifies nothing now may do so once the others of the same message are known: hence twice.
        """
        everything = list(lists)
        kept = [self.book.take(signed, signer=signer) for _ in range(2) for signer, signed in everything]
        for _, signed in everything:
            self.take_relayed(signed.commits)
        return any(kept)

    def take_relayed(self, commits: Iterable[SignedCommit]) -> None:
        """Into the own list while the window is open; else as far as a list names them."""
        for signed in commits:
            if self.is_open:
                self.take(signed)
            self._learn(signed)

    def restore(self, signed: SignedCommitList, *, signer: str) -> None:
        """The own list of before a restart."""
        self.is_open = False
        self.book.take(signed, signer=signer)
        for commit in signed.commits:
            provider = commit.commit.provider.lower()
            if self._forgery(commit, provider) == TAKEN:
                self.held[provider] = commit

    def _learn(self, signed: SignedCommit) -> None:
        bid_id, provider = signed.commit.bid_id, signed.commit.provider.lower()
        if not self.book.is_named(bid_id) or provider not in self._context.profiles:
            return
        known = self._learned.get(bid_id, {})
        if provider in known or self._owners.get(bid_id, provider) != provider or len(known) >= SAME_ID_MAX:
            return
        if self._forgery(signed, provider) == TAKEN:
            self._learned.setdefault(bid_id, {})[provider] = signed
            self.taken_count += 1

    def set_owner(self, bid_id: bytes, provider: str) -> None:
        """The body is known: commits of others with this id are copies."""
        self._owners[bid_id] = provider
        own = self._learned.pop(bid_id, {}).get(provider)
        if own is not None:
            self._learned[bid_id] = {provider: own}

    # what is known

    def commit_of(self, bid_id: bytes, provider: str) -> SignedCommit | None:
        held = self.held.get(provider)
        if held is not None and held.commit.bid_id == bid_id:
            return held
        return self._learned.get(bid_id, {}).get(provider)

    def commits_of(self, bid_ids: Iterable[bytes]) -> list[SignedCommit]:
        """All that are known of these bids, copies included."""
        found: dict[tuple[bytes, str], SignedCommit] = {}
        wanted = set(bid_ids)
        for provider, held in self.held.items():
            if held.commit.bid_id in wanted:
                found[held.commit.bid_id, provider] = held
        for bid_id in wanted:
            for provider, signed in self._learned.get(bid_id, {}).items():
                found.setdefault((bid_id, provider), signed)
        return [found[key] for key in sorted(found)]

    def is_complete(self, commits: CommitList) -> bool:
        """Whether the commits of a list are known."""
        held = {signed.commit.bid_id for signed in self.held.values()}
        return all(self._is_committed(bid_id, held) for bid_id in commits.bid_ids)

    def _is_committed(self, bid_id: bytes, held: Collection[bytes]) -> bool:
        if (owner := self._owners.get(bid_id)) is not None:
            return self.commit_of(bid_id, owner) is not None
        return bid_id in held or bid_id in self._learned

    def own_list(self) -> CommitList:
        bid_ids = sorted({signed.commit.bid_id for signed in self.held.values()})
        return CommitList(self._context.order_id, self._context.attempt, tuple(bid_ids))

    def everybody_has_answered(self) -> bool:
        return not self._awaited

    def some_have_closed(self) -> bool:
        weight = weight_of(self.book.signers(), self._context.weights)
        return is_some(weight, total=self.book.total)
