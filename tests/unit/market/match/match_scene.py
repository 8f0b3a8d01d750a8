"""Validators and bidders of one order in memory: a virtual clock, one millisecond between any two, nothing lost.

A test changes what it needs: who is silent, which bid goes to whom, what a liar sends. Deterministic, so that a failure
can be looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sparewatt.market.match.model import (
    AuctionContext,
    BidderContext,
    BidderStanding,
    MatchOutput,
    MatchTiming,
    QuorumCertificate,
    SignedRecord,
)
from sparewatt.market.match.provider_match import ProviderMatch
from sparewatt.market.match.validator_match import ValidatorMatch
from sparewatt.market.quorum import leader_of_match
from sparewatt.market.rule import commit_of, snapshot_tree
from sparewatt.protocol.contracts.match import Bid, BidTerms, Decline, Profile, Specification
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    RevealedBid,
    SignedCommit,
    SignedDecline,
    decode_message,
    encode_message,
)
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest, struct_hash
from tests.order_terms import order_terms

DOMAIN = contract_domain(chain_id=31_337, contract="0x" + "5a" * 20)
ORDER_ID = keccak256(b"an order")
SPEC = Specification(keccak256(b"content"), 1, 2_000, 4_096, 10_240, 1, 0)
TERMS = BidTerms(1, 2, 24, 4_000, 8_192, 20_480, 0, 1, 100, 50, 600)
LATENCY_MS = 1
STEPS_MAX = 20_000


def key_of(name: str) -> SigningKey:
    return SigningKey(keccak256(name.encode()))


VOTE_KEYS = tuple(sorted((key_of(f"validator {n}") for n in range(4)), key=lambda key: key.address))
NODE_KEYS = tuple(key_of(f"node {n}") for n in range(6))
PROVIDERS = tuple(key_of(f"provider {n}").address for n in range(6))


def profile_of(number: int, **changes: Any) -> Profile:
    usual = Profile(
        provider=PROVIDERS[number],
        epoch=1,
        country=49,
        zone=number,
        tier=1,
        gpu_model=2,
        gpu_class=4,
        vram_gb=24,
        gpu_units=2,
        compliance=0,
        uptime_ppm=990_000,
        reputation_ppm=900_000,
    )
    return replace(usual, **changes)


def context_for(
    profiles: Sequence[Profile] | None = None, *, weights: Sequence[int] = (1, 1, 1, 1), **changes: Any
) -> AuctionContext:
    """By default three of the providers are in the snapshot, each with its node key."""
    profiles = [profile_of(n) for n in range(3)] if profiles is None else profiles
    terms = changes.pop("terms", order_terms())
    usual = AuctionContext(
        domain=DOMAIN,
        order_id=ORDER_ID,
        attempt=0,
        terms=terms,
        policy_hash=struct_hash(terms),
        spec_hash=struct_hash(SPEC),
        snapshot_epoch=1,
        snapshot_root=snapshot_tree(profiles)[1].root,
        stake_version=3,
        weights={key.address: weight for key, weight in zip(VOTE_KEYS, weights, strict=True)},
        profiles={profile.provider: profile for profile in profiles},
        node_keys={provider: key.address for provider, key in zip(PROVIDERS, NODE_KEYS, strict=True)},
    )
    return replace(usual, **changes)


def bid_for(number: int, *, price: int = 0, terms: BidTerms = TERMS, salt: str = "", **changes: Any) -> RevealedBid:
    usual = Bid(
        order_id=ORDER_ID,
        attempt=0,
        provider=PROVIDERS[number],
        price_uusd=price or 1_000_000 + 100_000 * number,
        terms_hash=struct_hash(terms),
        salt=keccak256(f"salt {number}{salt}".encode()),
    )
    return RevealedBid(replace(usual, **changes), terms, SPEC)


def signed_by(key: SigningKey, message: TypedMessage, *, domain: Any = DOMAIN) -> bytes:
    return key.sign(message_digest(domain, message))


def commit_for(revealed: RevealedBid, *, key: SigningKey | None = None, domain: Any = DOMAIN) -> SignedCommit:
    commit = commit_of(revealed.bid)
    key = NODE_KEYS[PROVIDERS.index(revealed.bid.provider)] if key is None else key
    return SignedCommit(commit, signed_by(key, commit, domain=domain))


def decline_for(number: int, *, code: int = 64, key: SigningKey | None = None) -> SignedDecline:
    decline = Decline(ORDER_ID, 0, PROVIDERS[number], code)
    return SignedDecline(decline, signed_by(key or NODE_KEYS[number], decline))


def leader(context: AuctionContext, round_: int = 0) -> int:
    """The number of the validator that leads a round."""
    address = leader_of_match(context.weights, order_id=context.order_id, attempt=context.attempt, round_=round_)
    return [str(key.address) for key in VOTE_KEYS].index(address)


def over_the_wire(message: MatchMessage) -> MatchMessage:
    return decode_message(encode_message(message))


Filter = Callable[[int, int, MatchMessage], Iterable[MatchMessage]]
"""What becomes of a message from one validator to another."""


@dataclass
class MatchScene:
    """Numbers name validators (0 to 3) and providers (0 to 5)."""

    context: AuctionContext = field(default_factory=context_for)
    timing: MatchTiming = field(default_factory=MatchTiming)
    silent: frozenset[int] = frozenset()
    """Validators that neither send nor hear."""
    standings: Mapping[str, BidderStanding] = field(default_factory=dict)
    through: Filter = lambda sender, to, message: [message]
    now_ms: int = 1_000

    def __post_init__(self) -> None:
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.records: dict[int, list[SignedRecord]] = {n: [] for n in range(len(VOTE_KEYS))}
        self.dead: set[int] = set()
        """Validators whose messages on their way are lost."""
        self.submitted: list[tuple[int, int, QuorumCertificate]] = []
        self.codes: list[tuple[int, str, int]] = []
        self.validators = {n: self.validator(n) for n in self.records if n not in self.silent}
        self.bidders: dict[int, ProviderMatch] = {}

    def validator(self, number: int, stored: Sequence[SignedRecord] = ()) -> ValidatorMatch:
        return ValidatorMatch(
            self.context, key=VOTE_KEYS[number], timing=self.timing, standing=self.standing, stored=stored
        )

    def standing(self, provider: str) -> BidderStanding:
        return self.standings.get(provider, BidderStanding.GOOD)

    # running

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, action))

    def start(self, *, delays_ms: Mapping[int, int] | None = None) -> None:
        for number in self.validators:
            self.at((delays_ms or {}).get(number, 0), partial(self._begin, number))

    def _begin(self, number: int) -> None:
        if number in self.validators:
            self.done(number, self.validators[number].start(self.now_ms))

    def run(self, *, until: Callable[[], bool] | None = None, for_ms: int = 20_000) -> None:
        """Until the condition holds, or every validator has a certificate, or the time is over."""
        end = self.now_ms + for_ms
        for _ in range(STEPS_MAX):
            if until() if until is not None else self.is_certified():
                return
            due = min(filter(None, (self._queue[0][0] if self._queue else None, self._next_tick())), default=None)
            if due is None or due > end:
                self.now_ms = end
                return
            self.now_ms = max(self.now_ms, due)
            if self._queue and self._queue[0][0] <= self.now_ms:
                heapq.heappop(self._queue)[2]()
            else:
                self._tick()
        raise AssertionError("the match never rests")

    def _next_tick(self) -> int | None:
        machines: list[ValidatorMatch | ProviderMatch] = [*self._started(), *self.bidders.values()]
        return min((m.next_tick_ms for m in machines if m.next_tick_ms is not None), default=None)

    def _started(self) -> list[ValidatorMatch]:
        return [match for match in self.validators.values() if match.version]

    def _tick(self) -> None:
        for number, match in list(self.validators.items()):
            if match.version and match.next_tick_ms is not None and match.next_tick_ms <= self.now_ms:
                self.done(number, match.tick(self.now_ms))
        for number, bidder in self.bidders.items():
            if bidder.next_tick_ms is not None and bidder.next_tick_ms <= self.now_ms:
                self.send_all(number, bidder.tick(self.now_ms).send)

    def done(self, number: int, out: MatchOutput, *, asker: int | None = None) -> None:
        self.records[number] += out.records
        for message in map(over_the_wire, out.broadcast):
            for to in self.validators:
                if to != number:
                    self.send(number, to, message)
            self.tell_bidders(message)
        for message in out.replies:
            if asker is not None:
                self.send(number, asker, over_the_wire(message))
        if out.certificate is not None:
            self.submitted.append((self.now_ms, number, out.certificate))

    def send(self, sender: int, to: int, message: MatchMessage) -> None:
        for each in self.through(sender, to, message):
            self.at(LATENCY_MS, partial(self.deliver, sender, to, each))

    def deliver(self, sender: int, to: int, message: MatchMessage) -> None:
        match = self.validators.get(to)
        if match is None or not match.version or sender in self.dead:
            return
        out = match.receive(message, now_ms=self.now_ms)
        if out.code:
            self.codes.append((to, message.tag, out.code))
        self.done(to, out, asker=sender)

    def is_certified(self) -> bool:
        return all(match.certificate is not None for match in self.validators.values())

    # bidders

    def bid(self, revealed: RevealedBid, *, commit: SignedCommit | None = None, delay_ms: int = 0) -> None:
        """A provider that follows the rules."""
        context = BidderContext(domain=DOMAIN, order_id=ORDER_ID, attempt=0, weights=self.context.weights)
        number = PROVIDERS.index(revealed.bid.provider)

        def begin() -> None:
            self.bidders[number] = ProviderMatch(context, revealed, commit or commit_for(revealed))
            self.send_all(number, self.bidders[number].start(self.now_ms).send)

        self.at(delay_ms, begin)

    def send_all(self, number: int, messages: Iterable[tuple[str, MatchMessage]]) -> None:
        for vote_key, message in messages:
            to = [str(key.address) for key in VOTE_KEYS].index(vote_key)
            self.at(LATENCY_MS, partial(self._deliver_bid, number, to, message))

    def _deliver_bid(self, number: int, to: int, message: MatchMessage) -> None:
        match = self.validators.get(to)
        if match is None or not match.version:
            return
        out = match.receive(message, now_ms=self.now_ms)
        if isinstance(message, SignedCommit):
            self.bidders[number].answered(VOTE_KEYS[to].address, out.code)
        if out.code:
            self.codes.append((to, message.tag, out.code))
        self.done(to, out)

    def tell_bidders(self, message: MatchMessage) -> None:
        """Bidders fetch the lists."""
        if message.tag in ("commit_list", "reveal_list"):
            for number in self.bidders:
                self.at(LATENCY_MS, partial(self._hear, number, message))

    def _hear(self, number: int, message: Any) -> None:
        self.send_all(number, self.bidders[number].receive(message, now_ms=self.now_ms).send)

    def say(self, message: MatchMessage, *, to: Iterable[int] = (0, 1, 2, 3), delay_ms: int = 0) -> None:
        """Somebody sends a message to these validators."""
        for number in to:
            self.at(delay_ms, partial(self.deliver, -1, number, message))

    # what came out

    def task_hashes(self) -> set[bytes]:
        certificates = [match.certificate for match in self.validators.values()]
        return {struct_hash(each.task) for each in certificates if each is not None}

    def certificate(self) -> QuorumCertificate:
        """The one that all have."""
        assert self.is_certified()
        assert len(self.task_hashes()) == 1
        found = next(iter(self.validators.values())).certificate
        assert found is not None
        return found

    def winner(self) -> str | None:
        leaves = self.certificate().leaves
        return leaves[0].provider if leaves else None
