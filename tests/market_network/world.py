"""One simulated match from lookup to final certificate: validators, bidders, network, chain and one virtual clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count

from sparewatt.market.match.model import AuctionContext, BidderStanding
from sparewatt.market.match.provider_match import ProviderMatch
from sparewatt.market.match.validator_match import ValidatorMatch
from sparewatt.market.quorum import leader_of_match
from sparewatt.market.rule import snapshot_tree
from sparewatt.protocol.contracts.match import BidTerms, Profile, Specification
from sparewatt.protocol.contracts.match_messages import MatchMessage, decode_message, encode_message
from sparewatt.protocol.signing import SigningKey, keccak256, recover_address
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest, struct_hash
from tests.market_network.bidders import SimulatedBidder
from tests.market_network.chain import SimulatedChain
from tests.market_network.events import Timeline
from tests.market_network.happenings import Happening
from tests.market_network.liars import LyingValidator
from tests.market_network.scenario import ATTEMPT_MS, STABLE_MS, Crash, Scenario, Trick
from tests.market_network.validators import SimulatedValidator
from tests.market_network.watch import Watch
from tests.order_terms import order_terms

DOMAIN = contract_domain(chain_id=31_337, contract="0x" + "5a" * 20)
SPECIFICATION = Specification(b"\6" * 32, 1, 1_000, 1_024, 1_024, 0, 0)
TERMS = BidTerms(1, 3, 24, 1_000, 1_024, 1_024, 0, 0, 0, 0, 100)
PROVIDERS = 8
STABLE_DELAY_MS = 20


@dataclass(frozen=True)
class Core:
    """The state machines under test: the product's, or a copy with a bug planted in it."""

    validator: type[ValidatorMatch] = ValidatorMatch
    provider: type[ProviderMatch] = ProviderMatch


@dataclass(frozen=True)
class ProviderKeys:
    address: str
    node_key: SigningKey


@cache
def vote_key(number: int) -> SigningKey:
    return SigningKey(keccak256(b"validator %d" % number))


@cache
def provider_keys(number: int) -> ProviderKeys:
    owner = SigningKey(keccak256(b"owner %d" % number))
    return ProviderKeys(owner.address.lower(), SigningKey(keccak256(b"node %d" % number)))


@dataclass(frozen=True)
class Cast:
    """Who takes part, and what the chain says of the order."""

    context: AuctionContext
    vote_keys: tuple[SigningKey, ...]
    providers: tuple[ProviderKeys, ...]
    specification: Specification = SPECIFICATION
    bid_terms: BidTerms = TERMS


def cast_of(scenario: Scenario) -> Cast:
    rng = random.Random(f"cast {scenario.seed}")
    keys = tuple(sorted((vote_key(i) for i in range(len(scenario.weights))), key=lambda key: int(key.address, 16)))
    providers = tuple(provider_keys(i) for i in range(PROVIDERS))
    profiles = [_profile(each.address, rng, even=scenario.ties) for each in providers]
    absent = {providers[i].address for i, trick in enumerate(scenario.tricks) if trick is Trick.STRANGER}
    if scenario.bidders_only:
        absent |= {each.address for each in providers[len(scenario.tricks) :]}
    ordered, tree = snapshot_tree([each for each in profiles if each.provider not in absent])
    terms = order_terms(payment_rule=rng.randrange(2), latency_value=rng.choice((0, 100)))
    weights = {key.address.lower(): weight for key, weight in zip(keys, scenario.weights, strict=True)}
    attempt = rng.randrange(3)
    context = AuctionContext(
        domain=DOMAIN,
        order_id=_order_id(scenario, weights, attempt),
        attempt=attempt,
        terms=terms,
        policy_hash=struct_hash(terms),
        spec_hash=struct_hash(SPECIFICATION),
        snapshot_epoch=7,
        snapshot_root=tree.root,
        stake_version=9,
        weights=weights,
        profiles={each.provider: each for each in ordered},
        node_keys={each.address: each.node_key.address.lower() for each in providers},
    )
    return Cast(context, keys, providers)


def _order_id(scenario: Scenario, weights: dict[str, int], attempt: int) -> bytes:
    """Who leads follows from it."""
    liars = {address for i, address in enumerate(weights) if i in scenario.lies}
    for nonce in count():
        order_id = keccak256(b"order %d %d" % (scenario.seed, nonce))
        leader = leader_of_match(weights, order_id=order_id, attempt=attempt, round_=0)
        if not liars or not scenario.liar_leads or leader in liars:
            return order_id
    raise AssertionError


def _profile(provider: str, rng: random.Random, *, even: bool) -> Profile:
    """Of some, the GPUs are too few for the order."""
    uptime, reputation = (10**6, 10**6) if even else (rng.randrange(500_000, 10**6), rng.randrange(500_000, 10**6))
    units = 0 if rng.random() < 0.1 else 2
    return Profile(provider, 7, 49, 1 if even else rng.randrange(32), 2, 3, 4, 24, units, 3, uptime, reputation)


@dataclass
class World:
    scenario: Scenario
    cast: Cast
    core: Core
    timeline: Timeline = field(default_factory=Timeline)

    def __post_init__(self) -> None:
        self.context = self.cast.context
        self.providers = self.cast.providers
        self.specification, self.bid_terms = self.cast.specification, self.cast.bid_terms
        self.rng = random.Random(f"network {self.scenario.seed}")
        self.watch = Watch(self)
        self.standings = {
            self.providers[i].address: BidderStanding.UNBONDED
            for i, trick in enumerate(self.scenario.tricks)
            if trick is Trick.UNBONDED
        }
        self.chain = SimulatedChain(self.timeline, self.context, self.scenario.acceptance_reorgs, self._settle)
        self.validators: list[SimulatedValidator] = [
            LyingValidator(self, i, key, self.scenario.lies[i])
            if i in self.scenario.lies
            else SimulatedValidator(self, i, key)
            for i, key in enumerate(self.cast.vote_keys)
        ]
        self._arrivals_ms: dict[tuple[int, int], int] = {}
        self._numbers = {each.address: each.number for each in self.validators}
        self.bidders = [bidder for i, trick in enumerate(self.scenario.tricks) for bidder in self._bidders(i, trick)]

    def _bidders(self, number: int, trick: Trick) -> list[SimulatedBidder]:
        price = self.scenario.prices[number]
        if trick is Trick.PARTIAL:
            return [SimulatedBidder(self, number, trick, price, only=self._some_validators())]
        if trick is not Trick.DOUBLE:
            return [SimulatedBidder(self, number, trick, price)]
        n = len(self.scenario.weights)
        half = frozenset(self.rng.sample(range(n), n // 2))
        sides = (half, frozenset(range(n)) - half) if self.rng.random() < 0.5 else (None, None)
        return [SimulatedBidder(self, number, trick, price + i, only=side) for i, side in enumerate(sides)]

    def _some_validators(self) -> frozenset[int]:
        n = len(self.scenario.weights)
        return frozenset(self.rng.sample(range(n), self.rng.choice((n - 1, n // 2 + 1)))) | frozenset(
            self.scenario.lies
        )

    def run(self) -> World:
        scenario, timeline = self.scenario, self.timeline
        for validator, at_ms in zip(self.validators, scenario.lookups_ms, strict=True):
            timeline.at(at_ms, validator.see_order)
        for bidder in self.bidders:
            timeline.at(self._begin_ms(bidder), bidder.begin)
        for crash in scenario.crashes:
            timeline.at(crash.at_ms, partial(self._crash, crash))
        for restart in scenario.restarts:
            for bidder in [each for each in self.bidders if each.number == restart.bidder]:
                timeline.at(restart.at_ms, partial(bidder.crash, restart.down_ms))
        if scenario.lookup_reorg_ms is not None:
            gone, back = scenario.lookup_reorg_ms
            for validator in self.validators:
                timeline.at(gone + self.rng.randrange(40), validator.lose_order)
                timeline.at(back + self.rng.randrange(40), validator.see_order)
        self.validators[self.number_of(self.leader(0))].stops_at = scenario.leader_stops_at
        timeline.at(STABLE_MS, self._stable)
        timeline.run(until_ms=ATTEMPT_MS, done=lambda: self.chain.is_final or bool(self.chain.refusals))
        self.watch.happened[Happening.ACCEPTANCE_GONE] += len(self.chain.taken_back)
        self.watch.happened[Happening.SKEW] += self._skew_ms() >= 10
        return self

    def _skew_ms(self) -> float:
        """By how much clocks that were set alike would differ now."""
        drifts = self.scenario.drifts
        return self.timeline.now_ms * (max(drifts) - min(drifts))

    def _begin_ms(self, bidder: SimulatedBidder) -> int:
        terms = self.context.terms
        if bidder.trick is Trick.LATE:
            return int(terms.commit_ms * self.rng.uniform(0.8, 2.0))
        if bidder.trick is Trick.PARTIAL:
            return int(terms.commit_ms * self.rng.uniform(0.4, 0.95))
        return self.rng.randrange(20, 200 if self.scenario.is_calm else terms.commit_ms // 2)

    def _crash(self, crash: Crash) -> None:
        validator = self.validators[crash.validator]
        if crash.on_record:
            validator.crashes_on_record = crash.down_ms
        elif validator.is_up:
            validator.crash(crash.down_ms)

    def _stable(self) -> None:
        """Everybody is up, nothing is armed. The round that runs now is what liveness is counted from."""
        for validator in self.validators:
            validator.crashes_on_record = validator.stops_at = None
            validator.is_up = True
            validator.see_order()
        self.watch.stable_round = max((each.match.round for each in self.validators if each.match), default=0)

    def _settle(self) -> None:
        for validator in self.validators:
            validator.settle()

    def leader(self, round_: int) -> str:
        context = self.context
        return leader_of_match(context.weights, order_id=context.order_id, attempt=context.attempt, round_=round_)

    def order_is_there(self, number: int) -> bool:
        now, reorg = self.timeline.now_ms, self.scenario.lookup_reorg_ms
        if now < self.scenario.lookups_ms[number]:
            return False
        return reorg is None or not reorg[0] <= now < reorg[1]

    def context_now(self) -> AuctionContext:
        """What the chain says at this time: before a reorganisation it may have been something else."""
        reorg = self.scenario.lookup_reorg_ms
        if not self.scenario.reorg_changes_snapshot or reorg is None or self.timeline.now_ms >= reorg[0]:
            return self.context
        profiles = {name: replace(each, epoch=6, uptime_ppm=1) for name, each in self.context.profiles.items()}
        root = snapshot_tree(profiles.values())[1].root
        return replace(self.context, profiles=profiles, snapshot_root=root, snapshot_epoch=6)

    def number_of(self, address: str) -> int:
        return self._numbers[address.lower()]

    def signed_by(self, message: TypedMessage, signature: bytes) -> str:
        return recover_address(message_digest(self.context.domain, message), signature).lower()

    # The network

    def send(self, sender: int, receiver: int, message: MatchMessage) -> None:
        if self._is_cut(sender, receiver):
            self.watch.happened[Happening.CUT] += 1
            return
        if self.scenario.as_json:
            message = decode_message(encode_message(message))
        self.carry(receiver, lambda: self._hand_over(sender, receiver, message), sender=sender)

    def _hand_over(self, sender: int, receiver: int, message: MatchMessage) -> None:
        self.validators[receiver].deliver(message, sender)

    def carry(self, receiver: int, act: Callable[[], None], *, sender: int | None = None) -> None:
        """To or from a validator: perhaps never, perhaps twice, in any order. `sender`: of another validator."""
        stable, happened = self.timeline.now_ms >= STABLE_MS, self.watch.happened
        happened[Happening.MESSAGE] += 1
        if not stable and self.rng.random() < self.scenario.loss:
            happened[Happening.LOST] += 1
            return
        longest = STABLE_DELAY_MS if stable else self.scenario.delay_ms[1]
        copies = 2 if self.rng.random() < self.scenario.duplicates else 1
        happened[Happening.TWICE] += copies - 1
        for _ in range(copies):
            delay_ms = self.rng.randint(self.scenario.delay_ms[0], longest)
            self._note_overtaking(sender, receiver, self.timeline.now_ms + delay_ms)
            self.timeline.after(delay_ms, act)

    def _note_overtaking(self, sender: int | None, receiver: int, at_ms: int) -> None:
        """Of two messages from one validator to another, the second is there first."""
        if sender is not None:
            latest = self._arrivals_ms.get((sender, receiver), 0)
            self.watch.happened[Happening.OVERTAKING] += at_ms < latest
            self._arrivals_ms[sender, receiver] = max(latest, at_ms)

    def _is_cut(self, one: int, other: int) -> bool:
        partition = self.scenario.partition
        if partition is None or not partition.from_ms <= self.timeline.now_ms < partition.to_ms:
            return False
        return (one in partition.away) != (other in partition.away)


CORE = Core()


def simulate(scenario: Scenario, *, core: Core = CORE, cast: Cast | None = None) -> World:
    return World(scenario, cast or cast_of(scenario), core).run()
