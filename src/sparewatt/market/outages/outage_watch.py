"""One validator's judgement of outages: signs `Down` for a lease whose provider it has not heard, and counts votes.

It signs only what it could witness: the lease is active at that term, it has not heard the provider hold it since
`down_since`, it ran all that time, and it hears enough of the others. Validators hear the last heartbeat at different
seconds, so each begins with its own and takes over a later one that another has signed: nobody loses time in which a
signer heard it, and all end at the latest. A provider that beats again is left alone from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparewatt.market.chain_records import LeaseRecord, LeaseState, MarketState
from sparewatt.market.match.signatures import SignatureCheck
from sparewatt.market.outages.model import DownCertificate, Hearing, OutageOutput
from sparewatt.market.outages.self_check import OTHERS_MIN, hears_enough, other_providers
from sparewatt.market.quorum import is_quorum, leader_of_match, weight_of
from sparewatt.protocol.contracts.match import Down
from sparewatt.protocol.contracts.outage_messages import OutageMessage, OutageStatus, SignedDown
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.protocol.typed_message import message_digest

STALL_BEATS = 5
"""A clock that jumps by more between two looks, the machine's or the chain's: nothing was heard meanwhile."""
SIGNATURES_MAX = 32
"""For one term while a certificate can be used: one for each validator's own last heartbeat."""

CaseKey = tuple[str, int]
"""A lease and its term."""


@dataclass(slots=True)
class _Case:
    votes: dict[str, SignedDown] = field(default_factory=dict)
    """The latest of each validator, this one included."""
    signatures: int = 0
    certified_ms: int | None = None
    """When a quorum was first seen."""


class OutageWatch:
    """Holds votes for active leases only: at most one per lease and validator."""

    def __init__(
        self,
        *,
        key: SigningKey,
        domain: Domain,
        attempt_s: int,
        beat_ms: int,
        submit_step_ms: int,
        stored: Iterable[SignedDown] = (),
    ) -> None:
        """`attempt_s`: how long a certificate is good. `stored`: what this key has signed before a restart."""
        self._key, self._own, self._domain = key, key.address.lower(), domain
        self._attempt_s, self._beat_ms, self._submit_step_ms = attempt_s, beat_ms, submit_step_ms
        self._stored: dict[CaseKey, SignedDown] = {}
        for vote in sorted(stored, key=lambda each: each.down.down_since):
            self._stored["0x" + vote.down.lease_id.hex(), vote.down.term] = vote
        self._state = MarketState()
        self._weights: Mapping[str, int] = {}
        self._signatures = SignatureCheck(domain, known=self._weights)
        self._cases: dict[CaseKey, _Case] = {}
        self._looked: tuple[int, int] | None = None
        """Own time and chain time of the last look."""
        self._running_since = 0

    @property
    def open_cases(self) -> int:
        return len(self._cases)

    def follow(self, state: MarketState) -> None:
        """The chain's newest state. Votes about terms that are over are forgotten."""
        self._state = state
        weights = {each.vote_key.lower(): each.weight for each in state.weights_at(state.stake_version)}
        if weights != self._weights:
            self._weights, self._signatures = weights, SignatureCheck(self._domain, known=weights)
        self._cases = {key: case for key, case in self._cases.items() if self._lease_of(*key) is not None}

    def tick(self, hearing: Hearing) -> OutageOutput:
        """At least once per beat."""
        self._note_running(hearing)
        output = OutageOutput()
        if hearing.is_current and self._weights.get(self._own, 0):
            for lease in self._state.leases.values():
                if lease.state is LeaseState.ACTIVE:
                    self._judge(lease, hearing, output)
        return output

    def receive(self, message: OutageMessage, hearing: Hearing) -> OutageOutput:
        self._note_running(hearing)
        if isinstance(message, OutageStatus):
            case = self._cases.get(("0x" + message.lease_id.hex(), message.term))
            return OutageOutput(replies=list(case.votes.values()) if case is not None else [])
        return self._take_vote(message, hearing)

    # votes of others

    def _take_vote(self, vote: SignedDown, hearing: Hearing) -> OutageOutput:
        down = vote.down
        lease = self._lease_of("0x" + down.lease_id.hex(), down.term)
        if lease is None or lease.provider != down.provider.lower():
            return OutageOutput(code=MessageRefusal.WRONG_ORDER_OR_ATTEMPT)
        if not lease.running_since <= down.down_since <= hearing.unix_s:
            return OutageOutput(code=MessageRefusal.OUT_OF_RANGE)
        signer = self._signatures.signer_of(down, vote.signature)
        if signer is None:
            return OutageOutput(code=MessageRefusal.BAD_SIGNATURE)
        case = self._case(lease)
        known = case.votes.get(signer)
        if signer == self._own or (known is not None and known.down.down_since >= down.down_since):
            return OutageOutput(code=MessageRefusal.DUPLICATE, replies=self._votes_but(case, signer))
        case.votes[signer] = vote
        output = OutageOutput()
        if hearing.is_current and self._weights.get(self._own, 0):
            self._judge(lease, hearing, output, is_resent=False)
        output.replies = self._votes_but(case, signer)
        return output

    def _votes_but(self, case: _Case, signer: str) -> list[SignedDown]:
        return [vote for each, vote in case.votes.items() if each != signer]

    # the judgement

    def _judge(self, lease: LeaseRecord, hearing: Hearing, output: OutageOutput, *, is_resent: bool = True) -> None:
        order, since = self._state.orders.get(lease.lease_id), self._silent_since(lease, hearing)
        if order is None or lease.provider is None or hearing.unix_s < since + order.terms.down_s:
            return
        down_s = order.terms.down_s
        case = self._case(lease)
        known, recent = other_providers(self._state, hearing, lease.provider, beat_ms=self._beat_ms)
        output.is_asking |= known < OTHERS_MIN
        if not hears_enough(hearing, known=known, recent=recent):
            if known < OTHERS_MIN and is_resent:
                output.broadcast.append(OutageStatus(bytes.fromhex(lease.lease_id[2:]), lease.term))
            return
        is_new = self._sign(lease, case, hearing, output, since=since, down_s=down_s)
        own = case.votes.get(self._own)
        if own is not None and (is_new or is_resent):
            output.broadcast.append(own)
        certificate = self._certificate(case, hearing, since=since, down_s=down_s)
        if certificate is not None and self._is_turn(lease, case, hearing):
            output.certificates.append(certificate)

    def _silent_since(self, lease: LeaseRecord, hearing: Hearing) -> int:
        """Since when it is not heard, as far as this validator can tell."""
        held_at = hearing.beats.held_at(lease.provider or "", lease.lease_id, lease.term)
        return max(held_at or 0, lease.running_since, self._running_since)

    def _sign(
        self, lease: LeaseRecord, case: _Case, hearing: Hearing, output: OutageOutput, *, since: int, down_s: int
    ) -> bool:
        own = case.votes.get(self._own)
        last = own.down.down_since if own is not None else -1
        is_expired = own is not None and hearing.unix_s > last + down_s + self._attempt_s
        ripe = (vote.down.down_since for vote in case.votes.values())
        wanted = max([since, *(at for at in ripe if since <= at <= hearing.unix_s - down_s)])
        if is_expired:  # the outage goes on: all who signed the last one come to the same second
            wanted, case.signatures, case.certified_ms = max(wanted, last + self._attempt_s), 0, None
        if wanted <= last or case.signatures >= SIGNATURES_MAX:
            return False
        down = Down(bytes.fromhex(lease.lease_id[2:]), lease.term, lease.provider or "", wanted)
        vote = SignedDown(down, self._key.sign(message_digest(self._domain, down)))
        case.votes[self._own] = vote
        case.signatures += 1
        output.signed.append(vote)
        return True

    # the certificate

    def _certificate(self, case: _Case, hearing: Hearing, *, since: int, down_s: int) -> DownCertificate | None:
        """Of the latest second that a quorum signed, while the contract takes it and this validator agrees."""
        total = sum(self._weights.values())
        for at in sorted({vote.down.down_since for vote in case.votes.values()}, reverse=True):
            if at < since or not at + down_s <= hearing.unix_s <= at + down_s + self._attempt_s:
                continue
            voters = sorted(
                (signer for signer, vote in case.votes.items() if vote.down.down_since == at),
                key=lambda signer: int(signer, 16),
            )
            if is_quorum(weight_of(voters, self._weights), total=total):
                votes = tuple(case.votes[signer] for signer in voters)
                return DownCertificate(votes[0].down, votes, tuple(voters))
        return None

    def _is_turn(self, lease: LeaseRecord, case: _Case, hearing: Hearing) -> bool:
        """One validator submits at once, the others later by their rank, if it is still needed."""
        if case.certified_ms is None:
            case.certified_ms = hearing.now_ms
        order_id = bytes.fromhex(lease.lease_id[2:])
        ranks = range(len(self._weights))
        leaders = (leader_of_match(self._weights, order_id=order_id, attempt=lease.term, round_=rank) for rank in ranks)
        rank = next(rank for rank, leader in enumerate(leaders) if leader == self._own)
        return hearing.now_ms >= case.certified_ms + rank * self._submit_step_ms

    # the parts

    def _case(self, lease: LeaseRecord) -> _Case:
        key = (lease.lease_id, lease.term)
        case = self._cases.get(key)
        if case is None:
            case = self._cases[key] = _Case()
            if (stored := self._stored.pop(key, None)) is not None:
                case.votes[self._own] = stored
        return case

    def _lease_of(self, lease_id: str, term: int) -> LeaseRecord | None:
        """Active at this term."""
        lease = self._state.leases.get(lease_id)
        is_meant = lease is not None and lease.state is LeaseState.ACTIVE and lease.term == term
        return lease if is_meant else None

    def _note_running(self, hearing: Hearing) -> None:
        looked, self._looked = self._looked, (hearing.now_ms, hearing.unix_s)
        jump_ms = STALL_BEATS * self._beat_ms
        if looked is not None:
            passed_ms, chain_ms = hearing.now_ms - looked[0], (hearing.unix_s - looked[1]) * 1_000
            if passed_ms <= jump_ms and chain_ms - passed_ms <= jump_ms:
                return
        self._running_since = hearing.unix_s
