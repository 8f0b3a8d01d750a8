"""To whom a renter's secrets may be sealed: the candidates of a certified match, by the keys that signed their bids.

What a gateway says is not enough: it could name a key of its own. A candidate's public key is recovered from its signed
bid, the bid has to be in the tree that a quorum of votes certified, and every record at hand has to name the same node
key. That this key is the one in the provider registry is for a chain of the renter's choice to say. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.market.match.evidence_pool import EvidencePool, leaf_bid_id
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.match.replay import BidOutcome, Replay, pool_of, replay
from sparewatt.protocol.contracts.match import CANDIDATES_MAX, NO_PROVIDER, Award, CertificateRecord
from sparewatt.protocol.signing import recover_public_key
from sparewatt.protocol.typed_message import message_digest

ROUNDS_MAX = 64
"""Leaders of one attempt that are tried: a certificate of any of its rounds may be the accepted one."""


class UnprovenCandidates(Exception):
    """The records do not show who the candidates are. Its text says why."""


@dataclass(frozen=True, slots=True)
class SecretRecipient:
    provider: str
    node_key: str
    """Its address, as the provider registry must have it."""
    public_key: bytes


@dataclass(frozen=True, slots=True)
class ProvenMatch:
    recipients: tuple[SecretRecipient, ...]
    """In the candidates' order."""
    task_hash: bytes
    awards: tuple[Award, Award, Award]

    def is_recorded_as(self, record_hash: bytes) -> bool:
        """Whether this is the match whose hash the chain keeps."""
        records = (CertificateRecord(self.task_hash, number, self.awards) for number in range(ROUNDS_MAX))
        return any(each.record_hash() == record_hash for each in records)


def recipients_of(
    records: Sequence[AuctionRecord], *, order_id: bytes, attempt: int, candidates: Sequence[str]
) -> ProvenMatch:
    """Raises UnprovenCandidates."""
    fitting = [each for each in records if (each.context.order_id, each.context.attempt) == (order_id, attempt)]
    if not fitting:
        raise UnprovenCandidates("no validator has a record of this match yet")
    result, pool = replay(*fitting), pool_of(fitting)
    if result.differences:
        raise UnprovenCandidates(f"the match does not follow from its bids: {result.differences[0]}")
    if result.round is None:
        raise UnprovenCandidates("no quorum of votes for this match is recorded yet")
    chosen = [bid for bid in result.bids if bid.outcome in (BidOutcome.WON, BidOutcome.STANDBY)]
    certified = [bid.provider.lower() for bid in chosen]
    if certified != [each.lower() for each in candidates]:
        raise UnprovenCandidates("the gateway names other candidates than the validators have certified")
    awards = [Award(bid.provider, bid.pay_uusd or 0) for bid in chosen]
    first, second, third, *_ = [*awards, *(CANDIDATES_MAX * [Award(NO_PROVIDER, 0)])]
    recipients = tuple(_recipient(fitting, result, pool, provider) for provider in certified)
    return ProvenMatch(recipients, result.task_hash, (first, second, third))


def _recipient(records: Sequence[AuctionRecord], result: Replay, pool: EvidencePool, provider: str) -> SecretRecipient:
    keys = {each.context.node_keys.get(provider, "").lower() for each in records}
    leaf = next((leaf for leaf in result.leaves if leaf.provider.lower() == provider), None)
    commit = pool.commits.get(provider, {}).get(leaf_bid_id(result.task, leaf)) if leaf is not None else None
    if len(keys) != 1 or commit is None:
        raise UnprovenCandidates(f"validators do not agree which key signs for {provider}")
    # The pool has only commits whose signature is the node key's, so the recovered key has that address.
    digest = message_digest(pool.context.domain, commit.commit)
    return SecretRecipient(provider, keys.pop(), recover_public_key(digest, commit.signature))
