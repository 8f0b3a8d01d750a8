"""The reply of a match out of the chain's records and what was collected from validators. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from sparewatt.core.money import format_usd
from sparewatt.leasing.relay.candidates import claimed_profile, filter_counts, nearest_relaxations
from sparewatt.leasing.relay.evidence import MatchEvidence, SeenBid, SeenCertificate, SeenRelaxation, is_certified
from sparewatt.leasing.relay.lookups import weights_of
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.market.chain_records import (
    ENDED_ORDER_STATES,
    AcceptedCertificate,
    MarketState,
    OrderRecord,
    OrderState,
    RegistryStatus,
)
from sparewatt.market.quorum import is_quorum, is_some, leader_of_match, weight_of
from sparewatt.protocol.api.lease_match import (
    AuctionPhase,
    LeaseMatch,
    MatchBid,
    MatchBidState,
    MatchCandidate,
    MatchCertificate,
    MatchCounts,
    MatchDecline,
    MatchListEntry,
    MatchOrderSummary,
    MatchPhaseName,
    MatchRefusal,
    MatchRelaxation,
    MatchScore,
    MatchVote,
    MatchVoter,
)
from sparewatt.protocol.contracts.match import NO_PROVIDER, OrderTerms
from sparewatt.protocol.contracts.reason_words import count_in_words
from sparewatt.protocol.contracts.reasons import (
    BidStatus,
    DeclineReason,
    MessageRefusal,
    OrderOutcome,
    VoteRefusal,
)

PPM = 10**6
NO_BOND = "NO_BOND"
"""Of providers that were not asked; the protocol has no code for what never came."""
ROUNDS_SHOWN_MAX = 64
_PHASES: tuple[MatchPhaseName, ...] = ("commit", "reveal", "vote", "certified")
_CODES: tuple[type[IntEnum], ...] = (MessageRefusal, DeclineReason, OrderOutcome, VoteRefusal)


def match_reply(
    state: MarketState,
    order: OrderRecord,
    evidence: MatchEvidence | None,
    *,
    attempt: int,
    attempts: Sequence[int],
    version: int,
    has_record: bool,
    attempt_s: int,
    unix_s: float,
) -> LeaseMatch:
    """Of one attempt of an order; without evidence, what the chain alone says of it."""
    opened_at = order.opened_at.get(attempt, order.created_at)
    evidence = evidence or MatchEvidence(order_id=order.order_id, attempt=attempt, seen_unix_s=opened_at)
    weights = evidence.weights or weights_of(state, order.stake_version)
    accepted = order.certificate if order.certificate is not None and order.certificate.attempt == attempt else None
    phase = _phase(order, evidence, weights, attempt=attempt, attempt_s=attempt_s, unix_s=unix_s)
    bids = _Auction(order.terms, evidence, weights, _chosen(evidence, accepted), phase.name).bids()
    has_failed = phase.name in {"unmatched", "over"}
    counts = _counts(evidence, weights, bids)
    return LeaseMatch(
        order=_summary(state, order),
        attempt=attempt,
        attempts=sorted({*attempts, attempt}),
        version=version,
        phase=phase,
        counts=counts,
        why=_why(state, order, evidence, counts) if has_failed else None,
        relaxations=_relaxations(state, order, evidence) if has_failed else [],
        bids=bids,
        declines=[
            MatchDecline(provider=provider, code=code, reason=_name(code) or str(code))
            for provider, code in sorted(evidence.declines.items())
        ],
        refusals=[
            MatchRefusal(
                validator=vote_key,
                provider=each.provider,
                code=each.code,
                reason=_name(each.code) or str(each.code),
                late_by_ms=each.late_by_ms,
            )
            for vote_key, word in sorted(evidence.words.items())
            for each in word.refused
        ],
        lists=[
            MatchListEntry(kind=each.kind, validator=each.validator, bid_ids=list(each.bid_ids))
            for each in evidence.lists
        ],
        votes=_votes(evidence, accepted),
        voters=_voters(state, order, evidence, weights, attempt=attempt, round_=phase.round),
        certificate=_certificate(evidence, accepted),
        record=has_record,
    )


def _summary(state: MarketState, order: OrderRecord) -> MatchOrderSummary:
    stream = state.streams.get(order.order_id)
    is_empty = stream is None or stream.deposit_uusd == 0
    return MatchOrderSummary(
        id=order.order_id,
        renter=order.renter,
        state=order.state.name.lower(),
        reason=_name(order.outcome) if order.outcome is not None else None,
        attempt=order.attempt,
        max_attempts=order.max_attempts,
        opened_at=order.opened_at.get(order.attempt, order.created_at),
        expires_at=order.expires_at,
        max_hourly_usd=_usd(order.terms.max_price_uusd),
        gpu_units=order.terms.gpu_units,
        duration_s=order.terms.duration_s,
        commit_ms=order.terms.commit_ms,
        reveal_ms=order.terms.reveal_ms,
        stake_version=order.stake_version,
        snapshot_epoch=order.snapshot_epoch,
        refunded=order.state in ENDED_ORDER_STATES and is_empty,
    )


# the phase


def _phase(
    order: OrderRecord,
    evidence: MatchEvidence,
    weights: Mapping[str, int],
    *,
    attempt: int,
    attempt_s: int,
    unix_s: float,
) -> AuctionPhase:
    rounds = [word.round for word in evidence.words.values() if word.heard and word.round < 2**31]
    round_ = evidence.certificate.round if evidence.certificate is not None else max(rounds, default=0)
    name = _decided(order, evidence, attempt) or _reported(evidence, weights)
    terms, gone_ms = order.terms, int((unix_s - evidence.seen_unix_s) * 1_000)
    left: int | None
    match name:
        case "commit":
            left = terms.commit_ms - gone_ms
        case "reveal":
            left = terms.commit_ms + terms.reveal_ms - gone_ms
        case "vote" | "certified":
            left = int((order.opened_at.get(attempt, order.created_at) + attempt_s - unix_s) * 1_000)
        case _:
            left = None
    return AuctionPhase(name=name, round=round_, ends_in_ms=None if left is None else max(0, left))


def _decided(order: OrderRecord, evidence: MatchEvidence, attempt: int) -> MatchPhaseName | None:
    """What the chain says of the attempt; None while it is open."""
    if attempt < order.attempt:
        has_winner = evidence.certificate is not None and bool(evidence.certificate.candidates)
        return "matched" if has_winner and evidence.tx is not None else "unmatched"
    match order.state:
        case OrderState.OPEN:
            return "certified" if evidence.certificate is not None else None
        case OrderState.MATCHED:
            return "matched"
        case OrderState.UNMATCHED:
            return "unmatched"
        case _:
            return "matched" if order.certificate is not None and order.certificate.has_winner else "over"


def _reported(evidence: MatchEvidence, weights: Mapping[str, int]) -> MatchPhaseName:
    """The latest phase that validators with more than a third of the weight have reached, by their own words."""
    total, reached = sum(weights.values()), _PHASES[0]
    for number, name in enumerate(_PHASES[:3]):
        there = sum(
            weights.get(vote_key, 0)
            for vote_key, word in evidence.words.items()
            if word.heard and word.phase in {*_PHASES[number:], "over"}
        )
        if is_some(there, total=total):
            reached = name
    return reached


# bids


def _chosen(evidence: MatchEvidence, accepted: AcceptedCertificate | None) -> list[str] | None:
    """Of the newest attempt by the chain's record, of an earlier one by the certificate that its transaction had."""
    if accepted is not None:
        return [award.provider for award in accepted.record.chosen]
    seen = evidence.certificate if evidence.tx is not None else None
    return None if seen is None else [provider for provider, _ in seen.candidates]


@dataclass(frozen=True, slots=True)
class _Auction:
    """What the bids of an attempt are judged by."""

    terms: OrderTerms
    evidence: MatchEvidence
    weights: Mapping[str, int]
    chosen: Sequence[str] | None
    """The candidates that the chain accepted, the winner first; None while it has accepted nothing."""
    phase: MatchPhaseName

    def bids(self) -> list[MatchBid]:
        ranks = {provider: number for number, provider in enumerate(self.evidence.ranking, start=1)}
        bids = [self._bid(bid_id, seen, ranks.get(seen.provider)) for bid_id, seen in self.evidence.bids.items()]
        bids += self._refused({seen.provider for seen in self.evidence.bids.values()})
        return sorted(bids, key=lambda each: (each.rank is None, each.rank or 0, each.provider))

    def _bid(self, bid_id: str, seen: SeenBid, rank: int | None) -> MatchBid:
        state, status = self._state(bid_id, seen)
        return MatchBid(
            provider=seen.provider,
            bid_id=bid_id,
            state=state,
            status=status,
            reason=_name(status),
            price_usd=None if seen.price_uusd is None else _usd(seen.price_uusd),
            score=self._score(seen),
            rank=rank,
            committed_at=self._signers("commit", bid_id),
            revealed_at=self._signers("reveal", bid_id),
        )

    def _signers(self, kind: str, bid_id: str) -> list[str]:
        return sorted({each.validator for each in self.evidence.lists if each.kind == kind and bid_id in each.bid_ids})

    def _state(self, bid_id: str, seen: SeenBid) -> tuple[MatchBidState, int]:
        is_past_reveal = self.phase not in {"commit", "reveal"}
        if not is_certified(self.evidence, bid_id, self.weights):
            return ("uncertified", int(MessageRefusal.UNCERTIFIED)) if is_past_reveal else ("committed", 0)
        if seen.price_uusd is None:
            return ("unrevealed", int(MessageRefusal.UNREVEALED)) if is_past_reveal else ("certified", 0)
        if seen.leaf is not None and seen.leaf[3] != BidStatus.ELIGIBLE:
            return "rejected", seen.leaf[3]
        if self.chosen is None:
            return "eligible", 0
        if seen.provider not in self.chosen:
            return "lost", 0
        return ("won" if self.chosen[0] == seen.provider else "standby"), 0

    def _score(self, seen: SeenBid) -> MatchScore | None:
        if seen.leaf is None or seen.price_uusd is None or seen.leaf[3] != BidStatus.ELIGIBLE:
            return None
        uptime, reputation, rtt_ms, _, score = seen.leaf
        return MatchScore(
            score=str(score),
            price_uusd=seen.price_uusd,
            latency_uusd=self.terms.latency_value * rtt_ms,
            rtt_ms=rtt_ms,
            p_ok_ppm=max(1, uptime * reputation // PPM),
            uptime_ppm=uptime,
            reputation_ppm=reputation,
        )

    def _refused(self, bidders: set[str]) -> list[MatchBid]:
        """Providers that validators with more than a third of the weight say they refused: one of them is honest."""
        said: dict[str, dict[str, int]] = {}
        for vote_key, word in self.evidence.words.items():
            for each in word.refused:
                said.setdefault(each.provider, {}).setdefault(vote_key, each.code)  # the first: others follow from it
        total = sum(self.weights.values())
        return [
            MatchBid(
                provider=provider,
                bid_id=None,
                state="refused",
                status=code,
                reason=_name(code),
                price_usd=None,
                score=None,
                rank=None,
                committed_at=[],
                revealed_at=[],
            )
            for provider, codes in said.items()
            if provider not in bidders and is_some(weight_of(codes, self.weights), total=total)
            for code in [Counter(codes.values()).most_common(1)[0][0]]
        ]


def _counts(evidence: MatchEvidence, weights: Mapping[str, int], bids: Sequence[MatchBid]) -> MatchCounts:
    reasons = Counter(each.reason for each in bids if each.reason is not None)
    reasons.update(_name(code) or str(code) for code in evidence.declines.values())
    reasons.update(evidence.excluded)
    reasons[NO_BOND] += evidence.bondless
    return MatchCounts(
        asked=evidence.asked,
        bids=len(evidence.bids),
        declines=len(evidence.declines),
        certified=sum(is_certified(evidence, bid_id, weights) for bid_id in evidence.bids),
        revealed=sum(seen.price_uusd is not None for seen in evidence.bids.values()),
        eligible=len(evidence.ranking),
        by_reason={reason: count for reason, count in sorted(reasons.items()) if count},
    )


# votes


def _votes(evidence: MatchEvidence, accepted: AcceptedCertificate | None) -> list[MatchVote]:
    decided = evidence.certificate.task_hash if evidence.certificate is not None else None
    if accepted is not None:
        decided = "0x" + accepted.record.task_hash.hex()
    ordered = sorted(evidence.votes, key=lambda each: (each.round, each.validator))
    return [
        MatchVote(
            validator=each.validator,
            round=each.round,
            task_digest=each.task_hash,
            agrees=None if decided is None else each.task_hash == decided,
        )
        for each in ordered
    ]


def _voters(
    state: MarketState,
    order: OrderRecord,
    evidence: MatchEvidence,
    weights: Mapping[str, int],
    *,
    attempt: int,
    round_: int,
) -> list[MatchVoter]:
    leads: dict[str, list[int]] = {}
    order_id = bytes.fromhex(order.order_id[2:])
    for number in range(min(round_, ROUNDS_SHOWN_MAX) + 1 if weights else 0):
        leader = leader_of_match(weights, order_id=order_id, attempt=attempt, round_=number)
        leads.setdefault(leader, []).append(number)
    voters = []
    for vote_key, weight in weights.items():
        word = evidence.words.get(vote_key)
        voters.append(
            MatchVoter(
                vote_key=vote_key,
                operator=state.histories[vote_key].operator if vote_key in state.histories else "",
                weight_usd=_usd(weight),
                leads=leads.get(vote_key, []),
                heard=word is not None and word.heard,
                problem=word.problem if word is not None else None,
            )
        )
    return voters


def _certificate(evidence: MatchEvidence, accepted: AcceptedCertificate | None) -> MatchCertificate | None:
    """The one that the chain has, else the one that was collected."""
    seen = evidence.certificate
    if accepted is None and seen is None:
        return None
    pays = _pays(accepted, seen)
    prices = dict(seen.candidates) if seen is not None else {}
    is_same = accepted is None or seen is None or seen.task_hash == "0x" + accepted.record.task_hash.hex()
    return MatchCertificate(
        task_digest="0x" + accepted.record.task_hash.hex() if accepted is not None else seen.task_hash if seen else "",
        round=accepted.record.round if accepted is not None else seen.round if seen else 0,
        bid_count=accepted.bid_count if accepted is not None else seen.bid_count if seen else 0,
        bid_root=seen.bid_root if seen is not None and is_same else "",
        candidates=[
            MatchCandidate(
                provider=provider, position=position, price_usd=_usd(prices.get(provider, pay)), pay_usd=_usd(pay)
            )
            for position, (provider, pay) in enumerate(pays)
        ],
        pay_usd=_usd(pays[0][1]) if pays else None,
        signers=sorted(accepted.signers if accepted is not None else seen.signers if seen is not None else ()),
        tx=evidence.tx,
        accepted_at=accepted.accepted_at if accepted is not None else evidence.accepted_at,
    )


def _pays(accepted: AcceptedCertificate | None, seen: SeenCertificate | None) -> list[tuple[str, int]]:
    if accepted is not None:
        return [(each.provider, each.price_uusd) for each in accepted.record.chosen if each.provider != NO_PROVIDER]
    if seen is None:
        return []
    prices = [price for _, price in seen.candidates]
    return [(provider, pay) for (provider, _), pay in zip(seen.candidates, seen.pays or prices, strict=True)]


# why nobody


def _why(state: MarketState, order: OrderRecord, evidence: MatchEvidence, counts: MatchCounts) -> str:
    """One sentence, of what is known."""
    heard = [word for word in evidence.words.values() if word.heard]
    if order.reason == OrderOutcome.NO_QUORUM and not heard and evidence.words:
        return f"0 bids because none of {len(evidence.words)} validators answered this gateway."
    if (present := _too_few_validators(evidence)) is not None:
        bids = f"{counts.bids} bid{'' if counts.bids == 1 else 's'}"
        return f"No quorum: {present} of {len(evidence.weights)} validators took part, so {bids} came to nothing."
    reasons = Counter(counts.by_reason)
    if evidence.profiles is None:
        reasons.update(_claimed_counts(state, order))
    ranked = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    said = ", ".join(count_in_words(reason, count) for reason, count in ranked)
    if counts.bids:
        bids = f"{counts.bids} bid{'' if counts.bids == 1 else 's'}, {counts.eligible or 'none'} eligible"
        return bids + (f": {said}." if said else ".")
    if said:
        return f"0 bids because {said}."
    known = evidence.profiles if evidence.profiles is not None else len(_active(state))
    if not known:
        return "0 bids because no provider is registered and active."
    return f"0 bids because none of {known} providers that fit sent one; {counts.asked} nodes were asked."


def _too_few_validators(evidence: MatchEvidence) -> int | None:
    """How many signed lists, where these have no quorum of the stake; None if they have, or nothing is known."""
    if evidence.certificate is not None or evidence.accepted_at is not None or not evidence.lists:
        return None
    present = {each.validator for each in evidence.lists}
    weight = sum(evidence.weights.get(each, 0) for each in present)
    return None if is_quorum(weight, total=sum(evidence.weights.values())) else len(present)


def _active(state: MarketState) -> list[str]:
    return [each.provider for each in state.providers.values() if each.status is RegistryStatus.ACTIVE]


def _claimed_counts(state: MarketState, order: OrderRecord) -> Counter[str]:
    """Without the snapshot's table: by the registry's claims."""
    profiles = (claimed_profile(state.providers[each], order.terms) for each in _active(state))
    return filter_counts([each for each in profiles if each is not None], order.terms)


def _relaxations(state: MarketState, order: OrderRecord, evidence: MatchEvidence) -> list[MatchRelaxation]:
    found: Sequence[SeenRelaxation] = evidence.relaxations
    if evidence.profiles is None:
        profiles = (claimed_profile(state.providers[each], order.terms) for each in _active(state))
        nearest = nearest_relaxations([each for each in profiles if each is not None], order.terms)
        found = [SeenRelaxation(each.field, each.value, each.providers) for each in nearest]
    over = [
        seen.price_uusd
        for seen in evidence.bids.values()
        if seen.price_uusd is not None and seen.leaf is not None and seen.leaf[3] == BidStatus.OVER_MAX_PRICE
    ]
    dearer = [MatchRelaxation(field="max_hourly", value=_usd(min(over)), providers=1)] if over else []
    return dearer + [MatchRelaxation(field=each.field, value=each.value, providers=each.providers) for each in found]


def _name(code: int) -> str | None:
    """Of a code of a bid, a refusal, a decline, an order or a vote; None for 0."""
    if code == 0:
        return None
    if code <= max(BidStatus):
        return BidStatus(code).name
    known = {int(reason): reason.name for reasons in _CODES for reason in reasons}
    return known.get(code, str(code))


def _usd(uusd: int) -> str:
    return format_usd(uusd * NANO_PER_MICRO)
