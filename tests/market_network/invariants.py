"""The invariants of the protocol, checked after a run by somebody who saw everything.

`violations` names each that does not hold, by its number in the specification.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparewatt.market.faults import MarketFault, find_faults
from sparewatt.market.match.evidence_pool import EvidencePool, KnownTask
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.market.match.replay import pool_of, replay
from sparewatt.market.quorum import is_some, leader_of_match
from sparewatt.market.rule import awards_of, book_of, status_of
from sparewatt.protocol.contracts.match import NO_LEAF, BidLeaf, CertificateRecord, OrderTerms
from sparewatt.protocol.contracts.match_messages import SignedVote
from sparewatt.protocol.contracts.reasons import BidStatus
from sparewatt.protocol.typed_message import struct_hash
from tests.market_network.scenario import Trick
from tests.market_network.world import World

VALIDATOR_FAULTS = frozenset(
    {MarketFault.DOUBLE_SIGN, MarketFault.LEAF, MarketFault.RANK, MarketFault.ORDER, MarketFault.OMISSION}
)
NEVER_IN_A_TREE = frozenset(
    {Trick.FORGED, Trick.REPLAYED, Trick.UNBONDED, Trick.STRANGER, Trick.UNREVEALED, Trick.THIN, Trick.COPYCAT}
)
ROUNDS_BEYOND = 2


def violations(world: World) -> list[str]:
    return list(_Aftermath(world).all_violations())


class _Aftermath:
    def __init__(self, world: World) -> None:
        self.world, self.context, self.accepted = world, world.context, world.chain.accepted
        self.pool = EvidencePool(world.context).add_all(world.watch.messages.values())
        for validator in world.validators:
            self.pool.add_all(validator.disk if validator.is_honest else ())
        self.honest = {each.address for each in world.validators if each.is_honest}
        self.certified = self.pool.certified_tasks()
        record = recorded(world.context.terms, self.accepted) if self.accepted is not None else None
        self.faults = find_faults(self.pool, indices=dict.fromkeys(world.context.weights, 0), accepted=record)

    def all_violations(self) -> Iterator[str]:
        yield from self.world.watch.broken
        yield from self._one_task_per_round()
        yield from self._chain()
        yield from self._liveness()
        for (_, task_hash), voters in self.certified.items():
            if task_hash in self.pool.tasks:
                yield from self._receipts(self.pool.tasks[task_hash], voters)
                yield from self._bidders(self.pool.tasks[task_hash])
        yield from self._one_bid_per_provider()
        yield from self._honest_votes()
        yield from self._guilt()
        yield from self._written_once()
        yield from self._refusals()
        if self.accepted is not None and struct_hash(self.accepted.task) in self.pool.tasks:
            yield from self._result(self.accepted, self.pool.tasks[struct_hash(self.accepted.task)])
            yield from self._replays(self.accepted)
            yield from self._books(self.accepted)

    def _one_task_per_round(self) -> Iterator[str]:
        rounds = [round_ for round_, _ in self.certified]
        for round_ in {each for each in rounds if rounds.count(each) > 1}:
            yield f"I1 two tasks have a quorum in round {round_}"

    def _chain(self) -> Iterator[str]:
        for reason in self.world.chain.refusals:
            yield f"I2 an honest validator submitted what the contract refuses: {reason}"

    def _liveness(self) -> Iterator[str]:
        """I9; and I14: a certificate that a reorganisation took back is submitted again."""
        world = self.world
        if self.accepted is None or not world.chain.is_final:
            yield "I9 the attempt was not certified although a quorum was up"
            return
        stable_round = 0 if world.scenario.is_calm else world.watch.stable_round
        beyond = 0 if world.scenario.is_calm else ROUNDS_BEYOND
        allowed = len(world.scenario.lies) + beyond + (stable_round or 0)
        if stable_round is not None and self.accepted.round > allowed:
            yield f"I9 certified in round {self.accepted.round}, allowed are {allowed}"
        if len(world.chain.taken_back) != world.scenario.acceptance_reorgs:
            yield "I14 not every reorganisation came to be"

    def _receipts(self, known: KnownTask, voters: Sequence[str]) -> Iterator[str]:
        """Of a task with a quorum of votes, accepted or not."""
        weights = self.context.weights
        total = sum(weights.values())
        named: dict[bytes, set[str]] = {}
        for signer, lists in self.pool.reveal_lists.items():
            for bid_id in {bid_id for signed in lists.values() for bid_id in signed.list.bid_ids}:
                named.setdefault(bid_id, set()).add(signer)
        guilty = {culprit for each in self.faults if each.fault is MarketFault.OMISSION for culprit in each.culprits}
        for bid_id in named.keys() - known.bid_ids().keys():
            if 3 * sum(weights[signer] for signer in named[bid_id] & self.honest) >= total:
                yield "I3 a bid in honest reveal lists worth a third is not in a certified tree"
            receipts = sum(weights[signer] for signer in named[bid_id])
            if is_some(receipts, total=total) and not guilty & set(voters) and bid_id in self.pool.bids:
                yield "I4 a bid with enough receipts is absent and nobody is guilty"

    def _bidders(self, known: KnownTask) -> Iterator[str]:
        providers = [leaf.provider for leaf in known.leaves]
        if len(set(providers)) != len(providers):
            yield "I6 a provider has two bids in a certified tree"
        there, revealed_ms = known.bid_ids(), self.world.watch.first_reveal_ms
        for bidder in self.world.bidders:
            if bidder.bid_id not in there:
                continue
            if bidder.trick in NEVER_IN_A_TREE:
                yield f"§4, I5 a bid is in a certified tree: {bidder.trick.value}"
            if revealed_ms is not None and (bidder.committed_ms or 0) > revealed_ms:
                yield "I5 a bid committed after an honest reveal is certified"
            is_marked = known.leaves[there[bidder.bid_id]].status == BidStatus.OVER_MAX_PRICE
            if bidder.trick is Trick.OVER_CAP and not is_marked:
                yield "§6 a bid over the cap is not marked"

    def _one_bid_per_provider(self) -> Iterator[str]:
        for provider, commits in self.pool.commits.items():
            if sum(self.pool.is_certified(bid_id) for bid_id in commits) > 1:
                yield f"I6 two bids of {provider} are certified"

    def _honest_votes(self) -> Iterator[str]:
        """5.5: what an honest validator votes for was proposed by the leader, is certified and committed."""
        context, pool = self.context, self.pool
        for (round_, signer), votes in pool.votes.items():
            leader = leader_of_match(context.weights, order_id=context.order_id, attempt=context.attempt, round_=round_)
            for task_hash in votes if signer in self.honest else ():
                if task_hash not in pool.votes.get((round_, leader), {}):
                    yield f"5.5b a vote in round {round_} for what its leader did not propose"
                if task_hash in pool.tasks:
                    yield from self._leaves(pool.tasks[task_hash])

    def _leaves(self, known: KnownTask) -> Iterator[str]:
        for bid_id, index in known.bid_ids().items():
            if not self.pool.is_certified(bid_id):
                yield "5.5d a vote for a bid that no quorum of lists names"
            if bid_id not in self.pool.commits.get(known.leaves[index].provider.lower(), {}):
                yield "5.5d a vote for a bid that its node key did not commit"

    def _guilt(self) -> Iterator[str]:
        """I8: no key that follows the rules can be slashed. A bidder whose reveal was lost is no liar, and pays."""
        honest_bidders = {each.address for each in self.world.bidders if each.is_honest}
        for each in self.faults:
            if each.fault in VALIDATOR_FAULTS and self.honest & set(each.culprits):
                yield f"I8 an honest validator can be slashed: {each.fault.name}, {each.why}"
            may_pay = each.fault is MarketFault.UNREVEALED and not self.world.scenario.is_calm
            if honest_bidders & set(each.culprits) and not may_pay:
                yield f"I8 an honest bidder pays: {each.fault.name}"

    def _written_once(self) -> Iterator[str]:
        for validator in self.world.validators:
            keys = [
                (type(each).__name__, each.vote.round if isinstance(each, SignedVote) else 0) for each in validator.disk
            ]
            if validator.is_honest and len(set(keys)) != len(keys):
                yield f"5.1 validator {validator.number} signed twice for one occasion"

    def _refusals(self) -> Iterator[str]:
        """§2, §13: with what a bidder's message was refused stands in the replay, by who refused it."""
        given: dict[int, set[tuple[str, int]]] = {}
        for number, life, provider, code in self.world.watch.refusals if self.world.chain.is_final else ():
            validator = self.world.validators[number]
            if validator.match is not None and life == validator.starts:  # a crash loses what was noted before it
                given.setdefault(number, set()).add((provider, code))
        for number, refused in given.items():
            record = self.world.validators[number].last_record
            assert record is not None
            bids = replay(record).bids
            for provider, code in refused - {(bid.provider, each.code) for bid in bids for each in bid.refusals}:
                yield f"§13 the replay of validator {number} does not say that {provider} got {code}"

    def _result(self, accepted: QuorumCertificate, known: KnownTask) -> Iterator[str]:
        book = book_of(self.context.order_id, known.leaves)
        rng = random.Random(self.world.scenario.seed)
        shuffled = book_of(self.context.order_id, rng.sample(known.leaves, len(known.leaves)))
        if shuffled != book or book.tree.root != accepted.task.bid_root:
            yield "I11 the order of the bids changes the result"
        if book.candidates != (accepted.task.first, accepted.task.second, accepted.task.third):
            yield "I7 the candidates are not the best"
        if known.leaves:
            yield from self._without_one(known.leaves, rng.randrange(len(known.leaves)))
        if not book.ranking and accepted.task.first != NO_LEAF:
            yield "I10 a match without an eligible bid"
        if book.ranking and awards_of(self.context.terms, book)[0].price_uusd > self.context.terms.max_price_uusd:
            yield "§6 pay above the cap"
        timely = {
            each.bid_id for each in self.world.bidders if each.trick is Trick.NONE and self._may_win(each.address)
        }
        if self.world.scenario.is_calm and timely - known.bid_ids().keys():
            yield "I3 honest bids on a calm network are not in the tree"

    def _may_win(self, provider: str) -> bool:
        """An early close does not wait for the others."""
        return status_of(self.context.terms, self.context.profiles[provider], price_uusd=1) is BidStatus.ELIGIBLE

    def _without_one(self, leaves: tuple[BidLeaf, ...], gone: int) -> Iterator[str]:
        """I12, but for ties, which the root decides."""
        order_id = self.context.order_id
        whole, rest = book_of(order_id, leaves), book_of(order_id, [*leaves[:gone], *leaves[gone + 1 :]])
        kept = [whole.leaves[i].score for i in whole.ranking if whole.leaves[i] != leaves[gone]]
        if kept != [rest.leaves[i].score for i in rest.ranking]:
            yield "I12 a bid more changes the order of two others"

    def _books(self, accepted: QuorumCertificate) -> Iterator[str]:
        """5.7: whoever signed can publish the leaves, or loses half of its stake when they are demanded."""
        task_hash = struct_hash(accepted.task)
        for validator in self.world.validators:
            if validator.is_honest and validator.address in accepted.signers:
                record = validator.last_record
                kept = record.proposals if record is not None else ()
                if not any(struct_hash(each.task) == task_hash for each in kept):
                    yield f"5.7 validator {validator.number} signed the certificate and has no book of it"

    def _replays(self, accepted: QuorumCertificate) -> Iterator[str]:
        """Every honest validator that holds the accepted task computes the same digest from its record."""
        for validator in self.world.validators:
            record = validator.last_record
            if not validator.is_honest or record is None or record.context != self.context:
                continue
            if struct_hash(accepted.task) in pool_of([record]).tasks:
                again = replay(record, accepted=accepted.task)
                for difference in again.differences:
                    yield f"replay of validator {validator.number} differs: {difference}"
                if not again.differences and again.task_hash != struct_hash(accepted.task):
                    yield "a replay without differences has another digest"


def recorded(terms: OrderTerms, accepted: QuorumCertificate) -> CertificateRecord:
    """What the chain keeps of an accepted certificate. Its leaves are the candidates, best first."""
    book = book_of(accepted.task.order_id, accepted.leaves)
    ranking = tuple(book.leaves.index(leaf) for leaf in accepted.leaves)
    awards = awards_of(terms, replace(book, ranking=ranking))
    return CertificateRecord(struct_hash(accepted.task), accepted.round, awards)
