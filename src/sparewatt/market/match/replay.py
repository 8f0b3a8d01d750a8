"""A match computed again from what validators recorded: the same leaves, root and digest, and why each bid fared so.

Nothing in a record is believed but what is signed, or bound by a signed hash. Which bids count is what the certified
task says; what follows from them is computed here. Notes are the word of the validator that wrote them, and are shown
with its name. Whose signatures count (weights, node keys, snapshot) is for the chain to say: without a context from
there, that of the record is taken, and the replay says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.evidence_pool import EvidencePool, KnownTask, leaf_bid_id
from sparewatt.market.match.model import AuctionContext
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.match.voting import auction_task
from sparewatt.market.quorum import weight_of
from sparewatt.market.rule import BidBook, awards_of, book_of, leaf_of, snapshot_tree, success_ppm
from sparewatt.protocol.contracts.match import CANDIDATES_MAX, BidLeaf, Task
from sparewatt.protocol.contracts.reasons import BidStatus, DeclineReason, MessageRefusal
from sparewatt.protocol.typed_message import struct_hash


class BidOutcome(Enum):
    WON = "won"
    STANDBY = "standby"
    LOST = "lost"
    REJECTED = "rejected"
    """By the order's policy."""
    LEFT_OUT = "left out"
    """Revealed and certified, and yet not in the certified task: too few reveal lists named it."""
    UNREVEALED = "unrevealed"
    UNCERTIFIED = "uncertified"
    """No quorum of commit lists names it."""
    REFUSED = "refused"
    DECLINED = "declined"


@dataclass(frozen=True, slots=True)
class ScoreTerms:
    """What a score is made of. Lowest wins."""

    price_uusd: int
    rtt_ms: int
    latency_uusd: int
    """The round trip in money, by the order's rate."""
    success_ppm: int
    score: int


@dataclass(frozen=True, slots=True)
class BidRefusal:
    """One validator's word."""

    validator: str
    code: int
    reason: str
    late_by_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReplayedBid:
    provider: str
    outcome: BidOutcome
    rank: int | None = None
    """From 0, of the eligible bids."""
    terms: ScoreTerms | None = None
    """Of a bid in the tree."""
    pay_uusd: int | None = None
    """Of a candidate."""
    reason: str = ""
    listed_ppm: int = 0
    """The share of the stake whose commit lists name it."""
    refusals: tuple[BidRefusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    order_id: bytes
    attempt: int
    round: int | None
    """In which the task was certified; None if no quorum of votes is in the records."""
    leaves: tuple[BidLeaf, ...]
    bid_root: bytes
    task: Task
    task_hash: bytes
    voters: tuple[str, ...]
    bids: tuple[ReplayedBid, ...]
    """Candidates first, then by rank, then the others by provider."""
    differences: tuple[str, ...]
    """Between what was computed here, the chain, and what was certified. None: the result follows from the bids."""
    is_by_chain: bool = False
    """Whether the context came from the chain. If not, a made-up record passes: it brings its own keys and weights."""

    @property
    def winner(self) -> ReplayedBid | None:
        return next((bid for bid in self.bids if bid.outcome is BidOutcome.WON), None)


def replay(
    record: AuctionRecord,
    *others: AuctionRecord,
    accepted: Task | None = None,
    chain_context: AuctionContext | None = None,
) -> Replay:
    """`accepted` is the task on chain, where known. Records of several validators are merged by what is signed."""
    records = (record, *others)
    context = record.context if chain_context is None else chain_context
    pool = pool_of(records, context=context)
    certified = _certified(pool, accepted)
    judged = accepted if accepted is not None else (certified.task if certified is not None else None)
    book, missing = _book(pool, certified)
    task = auction_task(context, book)
    differences = [*_context_faults(records, context), *missing, *_task_differences(task, judged)]
    if accepted is not None and certified is None:
        differences.append(
            "No record has the leaves of the accepted task: the bids here are those known to the records."
        )
    if certified is not None:
        differences += _leaf_differences(book.leaves, certified.leaves)
    round_, voters = _votes(pool, struct_hash(judged) if judged is not None else struct_hash(task))
    return Replay(
        order_id=context.order_id,
        attempt=context.attempt,
        round=round_,
        leaves=book.leaves,
        bid_root=book.tree.root,
        task=task,
        task_hash=struct_hash(task),
        voters=voters,
        bids=_bids(pool, book, task, records),
        differences=tuple(differences),
        is_by_chain=chain_context is not None,
    )


def pool_of(records: Sequence[AuctionRecord], *, context: AuctionContext | None = None) -> EvidencePool:
    """Everything signed in the records. Those of another order or attempt add nothing."""
    pool = EvidencePool(records[0].context if context is None else context)
    for record in records:
        pool.add_all(record.declines)
        pool.add_all(record.commits)
        pool.add_all(record.commit_lists)
        pool.add_all(record.reveals)
        pool.add_all(record.reveal_lists)
        pool.add_all(record.proposals)
        pool.add_all(record.votes)
    return pool


def _certified(pool: EvidencePool, accepted: Task | None) -> KnownTask | None:
    """The accepted task with its leaves; without it, the one with a quorum of votes in the lowest round."""
    if accepted is not None:
        return pool.tasks.get(struct_hash(accepted))
    known = [pool.tasks[task_hash] for _, task_hash in sorted(pool.certified_tasks()) if task_hash in pool.tasks]
    return known[0] if known else None


def _book(pool: EvidencePool, certified: KnownTask | None) -> tuple[BidBook, list[str]]:
    """Leaves computed from bids and profiles. Without a certified task: of every certified, revealed bid."""
    context, missing = pool.context, []
    wanted = certified.bid_ids() if certified is not None else dict.fromkeys(_admissible(pool), 0)
    leaves: dict[str, BidLeaf] = {}
    for bid_id in wanted:
        revealed = pool.bids.get(bid_id)
        provider = revealed.bid.provider.lower() if revealed is not None else ""
        profile = context.profiles.get(provider)
        if revealed is None:
            missing.append(f"The bid 0x{bid_id.hex()} of the certified task is in no record.")
        elif profile is None:
            missing.append(f"{provider} has a leaf and no profile in the snapshot.")
        else:
            try:
                leaves.setdefault(provider, leaf_of(context.terms, revealed.bid, profile))
            except InvalidField as error:
                missing.append(f"The bid of {provider} is out of range: {error}")
            if not pool.is_certified(bid_id):
                missing.append(f"The bid of {provider} is in the task, and no quorum of commit lists names it.")
            if bid_id not in pool.commits.get(provider, {}):
                missing.append(f"The bid of {provider} is in the task, and its node key did not sign its commit.")
    return book_of(context.order_id, leaves.values()), missing


def _admissible(pool: EvidencePool) -> list[bytes]:
    return [
        bid_id
        for bid_id, revealed in sorted(pool.bids.items())
        if revealed.bid.provider.lower() in pool.context.profiles and pool.is_certified(bid_id)
    ]


def _context_faults(records: Sequence[AuctionRecord], context: AuctionContext) -> list[str]:
    found = []
    if struct_hash(context.terms) != context.policy_hash:
        found.append("The record's policy does not hash to the order's.")
    if snapshot_tree(context.profiles.values())[1].root != context.snapshot_root:
        found.append("The record's profiles do not hash to the snapshot's root.")
    found += [
        f"The record of {record.validator} has another context (weights, keys, policy or snapshot)."
        for record in records
        if record.context != context
    ]
    return found


def _task_differences(task: Task, judged: Task | None) -> list[str]:
    if judged is None:
        return []
    pairs = zip(vars(task).items(), vars(judged).values(), strict=True)
    return [
        f"{name} is {_shown(mine)} here and {_shown(theirs)} in the certified task."
        for (name, mine), theirs in pairs
        if mine != theirs
    ]


def _leaf_differences(mine: Sequence[BidLeaf], theirs: Sequence[BidLeaf]) -> list[str]:
    known = {leaf.provider.lower(): leaf for leaf in mine}
    found = []
    for leaf in theirs:
        own = known.get(leaf.provider.lower())
        for name, value in vars(leaf).items() if own is not None else ():
            if (computed := getattr(own, name)) != value:
                found.append(f"{name} of {leaf.provider} is {_shown(computed)} here and {_shown(value)} certified.")
    return found


def _shown(value: object) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)


def _votes(pool: EvidencePool, task_hash: bytes) -> tuple[int | None, tuple[str, ...]]:
    for (round_, known), voters in sorted(pool.certified_tasks().items()):
        if known == task_hash:
            return round_, voters
    return None, ()


def _bids(pool: EvidencePool, book: BidBook, task: Task, records: Sequence[AuctionRecord]) -> tuple[ReplayedBid, ...]:
    refusals = _refusals(records)
    found = {bid.provider: bid for bid in _in_tree(pool, book, task, refusals)}
    total = max(1, sum(pool.context.weights.values()))
    for provider, commits in sorted(pool.commits.items()):
        if provider in found:
            continue
        listed = {bid_id: weight_of(pool.listers(bid_id), pool.context.weights) for bid_id in commits}
        bid_id = max(sorted(listed), key=lambda each: listed[each])
        outcome = BidOutcome.UNCERTIFIED
        if pool.is_certified(bid_id):
            outcome = BidOutcome.LEFT_OUT if bid_id in pool.bids else BidOutcome.UNREVEALED
        share = listed[bid_id] * 10**6 // total
        found[provider] = ReplayedBid(
            provider, outcome, listed_ppm=share, reason=_WHY[outcome], refusals=refusals.get(provider, ())
        )
    for provider, signed in sorted(pool.declines.items()):
        if provider not in found:
            reason = _name(DeclineReason, signed.decline.code)
            refused = refusals.get(provider, ())
            found[provider] = ReplayedBid(provider, BidOutcome.DECLINED, reason=reason, refusals=refused)
    for provider, refused in sorted(refusals.items()):
        if provider not in found:
            found[provider] = ReplayedBid(provider, BidOutcome.REFUSED, reason=_main_reason(refused), refusals=refused)
    return tuple(found.values())


_WHY = {
    BidOutcome.UNCERTIFIED: "No quorum of commit lists names it: it came too late for too many.",
    BidOutcome.UNREVEALED: "A quorum listed its commit, and it was not revealed in time.",
    BidOutcome.LEFT_OUT: "Too few reveal lists named it when the leader proposed.",
}


def _in_tree(
    pool: EvidencePool, book: BidBook, task: Task, refusals: dict[str, tuple[BidRefusal, ...]]
) -> list[ReplayedBid]:
    awards = awards_of(pool.context.terms, book)
    total = max(1, sum(pool.context.weights.values()))
    rejected = [index for index in range(len(book.leaves)) if index not in book.ranking]
    found = []
    for rank, index in enumerate([*book.ranking, *rejected]):
        leaf = book.leaves[index]
        provider = leaf.provider.lower()
        eligible = index in book.ranking
        outcome, reason = BidOutcome.REJECTED, _name(BidStatus, leaf.status)
        if eligible:
            outcome = BidOutcome.WON if rank == 0 else BidOutcome.STANDBY if rank < CANDIDATES_MAX else BidOutcome.LOST
            reason = _why_behind(pool.context, book.leaves[book.ranking[0]], leaf) if rank else "The lowest score."
        bid_id = leaf_bid_id(task, leaf)
        found.append(
            ReplayedBid(
                provider,
                outcome,
                rank=rank if eligible else None,
                terms=_score_terms(pool.context, leaf),
                pay_uusd=awards[rank].price_uusd if eligible and rank < CANDIDATES_MAX else None,
                reason=reason,
                listed_ppm=weight_of(pool.listers(bid_id), pool.context.weights) * 10**6 // total,
                refusals=refusals.get(provider, ()),
            )
        )
    return found


def _score_terms(context: AuctionContext, leaf: BidLeaf) -> ScoreTerms:
    latency = context.terms.latency_value * leaf.rtt_ms
    return ScoreTerms(leaf.price_uusd, leaf.rtt_ms, latency, success_ppm(leaf), leaf.score)


def _why_behind(context: AuctionContext, winner: BidLeaf, leaf: BidLeaf) -> str:
    """The terms in which the winner is better, or that only the tie-break decided."""
    if winner.score == leaf.score:
        return "The same score as the winner's; the tie-break decided."
    best, own = _score_terms(context, winner), _score_terms(context, leaf)
    worse = [
        word
        for word, is_worse in (
            ("dearer", own.price_uusd > best.price_uusd),
            ("farther away", own.latency_uusd > best.latency_uusd),
            ("less reliable", own.success_ppm < best.success_ppm),
        )
        if is_worse
    ]
    return f"The score is {own.score - best.score} above the winner's: {', '.join(worse)}."


def _refusals(records: Sequence[AuctionRecord]) -> dict[str, tuple[BidRefusal, ...]]:
    """By provider, one per validator and code."""
    found: dict[str, dict[tuple[str, int], BidRefusal]] = {}
    codes = {int(code) for code in MessageRefusal}
    for record in records:
        for note in record.notes:
            if note.code in codes and note.subject and note.subject.lower() not in record.context.weights:
                refusal = BidRefusal(record.validator, note.code, _name(MessageRefusal, note.code), note.late_by_ms)
                found.setdefault(note.subject.lower(), {}).setdefault((record.validator, note.code), refusal)
    return {provider: tuple(each.values()) for provider, each in found.items()}


def _main_reason(refused: Sequence[BidRefusal]) -> str:
    """What most validators said first: the others follow from it, as a reveal is refused whose commit was late."""
    first: dict[str, str] = {}
    for refusal in refused:
        first.setdefault(refusal.validator, refusal.reason)
    return Counter(first.values()).most_common(1)[0][0]


def _name(codes: type[BidStatus | DeclineReason | MessageRefusal], code: int) -> str:
    return codes(code).name if code in {int(each) for each in codes} else str(code)
