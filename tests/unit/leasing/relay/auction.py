"""An auction with real keys and signatures: three providers, four validators, one order.

Messages are as validators serve them, so that every lie is a change of a true one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from sparewatt.leasing.relay.evidence import EvidenceBook, EvidenceRules, MatchEvidence
from sparewatt.leasing.relay.lookups import MarketAddresses
from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.market.match.model import AuctionContext, QuorumCertificate
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.rule import BidBook, bid_id_of, book_of, commit_of, leaf_of, snapshot_tree, task_of
from sparewatt.protocol.api.validators import MatchProgress
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import (
    Bid,
    BidTerms,
    CommitList,
    Decline,
    OrderTerms,
    Profile,
    RevealList,
    Specification,
    Task,
    Vote,
    order_id_of,
)
from sparewatt.protocol.contracts.match_messages import (
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    SignedVote,
    write_object,
)
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest, struct_hash
from tests.order_terms import order_terms
from tests.unit.market.market_events import START_S, ZERO, an_event, deposited, json_terms, lookup, weighed

CHAIN_ID = 31_337
TASKS, ORDERS, STAKES, MOVES = (f"0x{digits * 20}" for digits in ("c1", "c2", "c3", "c4"))
ADDRESSES = MarketAddresses(
    chain_id=CHAIN_ID, task_manager=TASKS, deployment_order=ORDERS, stake_registry=STAKES, lease_moves=MOVES
)
DOMAIN = contract_domain(chain_id=CHAIN_ID, contract=TASKS)
RENTER = "0x" + "11" * 20
RENTER_NONCE = 5
CONTENT = '{"image":"busybox"}'
OPENED_AT = START_S + 500
BOND = 10**9
"""More than any order here asks for."""


def key(number: int) -> SigningKey:
    return SigningKey(number.to_bytes(32, "big"))


PROVIDERS = ["0x" + f"{number:02x}" * 20 for number in (0xA1, 0xA2, 0xA3)]
NODE_KEYS = {provider: key(900 + number) for number, provider in enumerate(PROVIDERS)}
VOTE_KEYS = sorted((key(950 + number) for number in range(4)), key=lambda each: each.address)
OPERATORS = ["0x" + f"{number:02x}" * 20 for number in (0xD1, 0xD2, 0xD3, 0xD4)]
WEIGHTS: dict[str, int] = {each.address: 100 for each in VOTE_KEYS}
STRANGER = key(999)
_SERVED: dict[Any, dict[str, Any]] = {}

SPECIFICATION = Specification(keccak256(CONTENT.encode()), 1, 1_000, 1_024, 1_024, 0, 0)
SPEC_HASH = struct_hash(SPECIFICATION)
BID_TERMS = BidTerms(1, 3, 24, 1_000, 1_024, 1_024, 0, 0, 0, 0, 100)


def profile(provider: str, **changes: Any) -> Profile:
    usual = Profile(provider, 1, 49, 1, 2, 3, 100, 24, 1, 0, 990_000, 980_000)
    return replace(usual, **changes)


PROFILES = [profile(PROVIDERS[0]), profile(PROVIDERS[1], zone=2), profile(PROVIDERS[2], vram_gb=8)]


def order_id(terms: OrderTerms) -> bytes:
    return order_id_of(
        chain_id=CHAIN_ID,
        orders=ORDERS,
        renter=RENTER,
        renter_nonce=RENTER_NONCE,
        policy_hash=struct_hash(terms),
        spec_hash=SPEC_HASH,
    )


def signed(signer: SigningKey, message: TypedMessage) -> bytes:
    return _signed(signer, message_digest(DOMAIN, message))


@lru_cache(maxsize=1_000)
def _signed(signer: SigningKey, digest: bytes) -> bytes:
    return signer.sign(digest)


@dataclass
class Auction:
    """What honest parties sign in it."""

    terms: OrderTerms = field(default_factory=lambda: order_terms(min_vram_gb=16))
    attempt: int = 0
    prices: dict[str, int] = field(default_factory=lambda: {PROVIDERS[0]: 2_000_000, PROVIDERS[1]: 1_500_000})

    @property
    def order_id(self) -> bytes:
        return order_id(self.terms)

    @property
    def id_text(self) -> str:
        return "0x" + self.order_id.hex()

    # the chain

    def events(self) -> list[ChainEvent]:
        """Up to the lookup, all before it opened."""
        name, found = "provider_registry.", list[ChainEvent]()
        for number, provider in enumerate(PROVIDERS):
            claims = [49, 1 + (number == 1), 2, 3, 8 if number == 2 else 24, 1, 2_000_000, ZERO]
            found += [
                an_event(f"{name}NodeKeyChanged", provider=provider, node_key=NODE_KEYS[provider].address),
                an_event(f"{name}ProviderRegistered", provider=provider),
                an_event(f"{name}ClaimsChanged", provider=provider, claims=claims),
                an_event(f"{name}StatusChanged", provider=provider, status=2, reason=ZERO),
                an_event("stake_registry.BondChanged", provider=provider, free=BOND, locked=0, unbonding=0),
            ]
        for number, (operator, vote_key) in enumerate(zip(OPERATORS, VOTE_KEYS, strict=True), start=1):
            url = f"http://127.0.0.1:{9_000 + number}"
            found += [
                an_event("stake_registry.ValidatorChanged", operator=operator, vote_key=vote_key.address, url=url),
                weighed(vote_key.address, version=number, weight=100, total=100 * number, operator=operator),
            ]
        root = "0x" + snapshot_tree(PROFILES)[1].root.hex()
        found.append(an_event("task_manager.SnapshotPosted", epoch=1, root=root, count=3, inputs_hash=ZERO))
        return [replace(event, unix_s=START_S) for event in found]

    def lookup_event(self, **changes: Any) -> ChainEvent:
        args = {
            "attempt": self.attempt,
            "renter": RENTER,
            "policy": json_terms(self.terms),
            "spec_hash": "0x" + SPEC_HASH.hex(),
            "stake_version": 4,
            **changes,
        }
        return replace(lookup(self.id_text, **args), unix_s=OPENED_AT)

    def state(self, *later: ChainEvent) -> MarketState:
        state = MarketState()
        for event in [*self.events(), self.lookup_event(), deposited(self.id_text), *later]:
            apply_event(state, event)
        return state

    # messages

    def bid(self, provider: str) -> Bid:
        return Bid(
            self.order_id, self.attempt, provider, self.prices[provider], struct_hash(BID_TERMS), keccak256(b"salt")
        )

    def bid_id(self, provider: str) -> str:
        return "0x" + bid_id_of(self.bid(provider)).hex()

    def commit(self, provider: str) -> SignedCommit:
        commit = commit_of(self.bid(provider))
        return SignedCommit(commit, signed(NODE_KEYS[provider], commit))

    def revealed(self, provider: str) -> RevealedBid:
        return RevealedBid(self.bid(provider), BID_TERMS, SPECIFICATION)

    def commit_list(self, signer: SigningKey) -> SignedCommitList:
        named = tuple(sorted(bid_id_of(self.bid(each)) for each in self.prices))
        message = CommitList(self.order_id, self.attempt, named)
        return SignedCommitList(message, signed(signer, message), tuple(self.commit(each) for each in self.prices))

    def reveal_list(self, signer: SigningKey) -> SignedRevealList:
        named = tuple(sorted(bid_id_of(self.bid(each)) for each in self.prices))
        message = RevealList(self.order_id, self.attempt, named)
        bids = tuple(self.revealed(each) for each in self.prices)
        return SignedRevealList(message, signed(signer, message), bids, ())

    def decline(self, provider: str, code: int = 64, *, signer: SigningKey | None = None) -> SignedDecline:
        decline = Decline(self.order_id, self.attempt, provider, code)
        return SignedDecline(decline, signed(signer or NODE_KEYS[provider], decline))

    # the result

    @property
    def book(self) -> BidBook:
        profiles = {each.provider: each for each in PROFILES}
        return book_of(self.order_id, [leaf_of(self.terms, self.bid(each), profiles[each]) for each in self.prices])

    @property
    def task(self) -> Task:
        return task_of(
            self.book,
            attempt=self.attempt,
            policy_hash=struct_hash(self.terms),
            snapshot_epoch=1,
            snapshot_root=snapshot_tree(PROFILES)[1].root,
            stake_version=4,
        )

    def vote(self, signer: SigningKey, *, round_: int = 0, task: Task | None = None) -> SignedVote:
        vote = Vote(self.order_id, self.attempt, round_, struct_hash(task or self.task))
        return SignedVote(vote, signed(signer, vote))

    def certificate(self, *, voters: int = 4) -> QuorumCertificate:
        book = self.book
        indices = book.ranking[:3]
        return QuorumCertificate(
            task=self.task,
            round=0,
            terms=self.terms,
            leaves=tuple(book.leaves[index] for index in indices),
            paths=tuple(tuple(book.tree.path(index)) for index in indices),
            commits=tuple(self.commit(book.leaves[index].provider) for index in indices),
            votes=tuple(self.vote(each) for each in VOTE_KEYS[:voters]),
            signers=(),
        )

    # as a validator serves it

    def progress(self, **changes: Any) -> MatchProgress:
        key = (self.terms, self.attempt, tuple(self.prices.items()))
        if key not in _SERVED:
            _SERVED[key] = self._served()
        return MatchProgress(**{**_SERVED[key], **changes})

    def _served(self) -> dict[str, Any]:
        return {
            "order_id": self.id_text,
            "attempt": self.attempt,
            "version": 3,
            "run_id": "run",
            "phase": "certified",
            "round": 0,
            "commit_lists": [write_object(self.commit_list(each)) for each in VOTE_KEYS],
            "reveal_lists": [write_object(self.reveal_list(each)) for each in VOTE_KEYS],
            "declines": [write_object(self.decline(PROVIDERS[2]))],
            "votes": [write_object(self.vote(each)) for each in VOTE_KEYS],
            "certificate": write_object(self.certificate()),
        }

    def record(self, validator: SigningKey, **changes: Any) -> AuctionRecord:
        """Lists without what they name, as a validator's record has them."""
        context = AuctionContext(
            domain=DOMAIN,
            order_id=self.order_id,
            attempt=self.attempt,
            terms=self.terms,
            policy_hash=struct_hash(self.terms),
            spec_hash=SPEC_HASH,
            snapshot_epoch=1,
            snapshot_root=snapshot_tree(PROFILES)[1].root,
            stake_version=4,
            weights=WEIGHTS,
            profiles={each.provider: each for each in PROFILES},
            node_keys={provider: each.address for provider, each in NODE_KEYS.items()},
        )
        members: dict[str, Any] = {
            "commits": tuple(self.commit(each) for each in self.prices),
            "declines": (self.decline(PROVIDERS[2]),),
            "commit_lists": tuple(replace(self.commit_list(each), commits=()) for each in VOTE_KEYS),
            "reveals": tuple(self.revealed(each) for each in self.prices),
            "reveal_lists": tuple(replace(self.reveal_list(each), bids=()) for each in VOTE_KEYS),
            "votes": tuple(self.vote(each) for each in VOTE_KEYS),
            **changes,
        }
        return AuctionRecord(context=context, validator=validator.address, **members)

    def evidence_book(self) -> EvidenceBook:
        rules = EvidenceRules(
            domain=DOMAIN,
            order_id=self.order_id,
            attempt=self.attempt,
            terms=self.terms,
            stake_version=4,
            snapshot_epoch=1,
            weights=WEIGHTS,
            node_keys={provider: each.address for provider, each in NODE_KEYS.items()},
        )
        evidence = MatchEvidence(
            order_id=self.id_text, attempt=self.attempt, seen_unix_s=OPENED_AT, weights=dict(WEIGHTS)
        )
        return EvidenceBook(rules=rules, evidence=evidence)
