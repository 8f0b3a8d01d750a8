"""The chain as a match sees it: it checks a certificate as `task_manager` does, accepts one, and may take it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sparewatt.market.match.evidence_pool import leaf_bid_id
from sparewatt.market.match.model import AuctionContext, QuorumCertificate
from sparewatt.market.quorum import is_quorum
from sparewatt.market.rule import tie_break
from sparewatt.protocol.contracts.match import NO_LEAF
from sparewatt.protocol.contracts.merkle import verify_proof
from sparewatt.protocol.signing import keccak256, recover_address
from sparewatt.protocol.typed_message import message_digest, struct_hash
from tests.market_network.events import Timeline
from tests.market_network.scenario import ATTEMPT_MS

BLOCK_MS = 20
FINAL_MS = 400
"""No reorganisation takes a block back that is older."""
REORG_AFTER_MS = 200


@dataclass
class SimulatedChain:
    timeline: Timeline
    context: AuctionContext
    reorgs_left: int
    on_final: Callable[[], None]
    accepted: QuorumCertificate | None = None
    is_final: bool = False
    refusals: list[str] = field(default_factory=list)
    """Of certificates that the contract would revert."""
    taken_back: list[QuorumCertificate] = field(default_factory=list)

    def submit(self, certificate: QuorumCertificate) -> None:
        self.timeline.after(BLOCK_MS, lambda: self._include(certificate))

    def _include(self, certificate: QuorumCertificate) -> None:
        if self.accepted is not None or self.timeline.now_ms > ATTEMPT_MS:
            return  # ALREADY_MATCHED or over: no error for the sender
        if (reason := refusal_of(self.context, certificate)) is not None:
            if certificate.task.snapshot_epoch == self.context.snapshot_epoch:
                self.refusals.append(reason)  # else a reorganisation has made it useless
            return
        self.accepted = certificate
        if self.reorgs_left:
            self.reorgs_left -= 1
            self.timeline.after(REORG_AFTER_MS, self._reorganise)
        else:
            self.timeline.after(FINAL_MS, self._finalise)

    def _reorganise(self) -> None:
        assert self.accepted is not None
        self.taken_back.append(self.accepted)
        self.accepted = None

    def _finalise(self) -> None:
        self.is_final = True
        self.on_final()


def refusal_of(context: AuctionContext, certificate: QuorumCertificate) -> str | None:
    """Why `accept_match` or `accept_no_match` would revert, or None."""
    task = certificate.task
    expected = (
        context.order_id,
        context.attempt,
        context.policy_hash,
        context.snapshot_epoch,
        context.snapshot_root,
        context.stake_version,
    )
    if task.values()[:6] != expected:
        return "WRONG_TASK"
    return _votes_refused(context, certificate) or _candidates_refused(context, certificate)


def _votes_refused(context: AuctionContext, certificate: QuorumCertificate) -> str | None:
    last, weight = 0, 0
    task_hash = struct_hash(certificate.task)
    for signed in certificate.votes:
        vote = signed.vote
        if (vote.task_hash, vote.round, vote.order_id) != (task_hash, certificate.round, context.order_id):
            return "WRONG_VOTE"
        signer = recover_address(message_digest(context.domain, vote), signed.signature)
        if int(signer, 16) <= last:
            return "VOTES_NOT_ASCENDING"
        last = int(signer, 16)
        weight += context.weights.get(signer.lower(), 0)
    return None if is_quorum(weight, total=sum(context.weights.values())) else "NO_QUORUM"


def _candidates_refused(context: AuctionContext, certificate: QuorumCertificate) -> str | None:
    task = certificate.task
    indices = [index for index in (task.first, task.second, task.third) if index != NO_LEAF]
    seed = keccak256(task.order_id + task.bid_root)
    ranks = []
    if not len(indices) == len(certificate.leaves) == len(certificate.paths) == len(certificate.commits):
        return "WRONG_COUNT"
    for index, leaf, path, signed in zip(
        indices, certificate.leaves, certificate.paths, certificate.commits, strict=True
    ):
        hashed = struct_hash(leaf)
        if not verify_proof(root=task.bid_root, count=task.bid_count, leaf=hashed, index=index, path=path):
            return "NOT_IN_BIDS"
        commit = signed.commit
        signer = recover_address(message_digest(context.domain, commit), signed.signature)
        fits = commit.bid_id == leaf_bid_id(task, leaf) and commit.provider.lower() == leaf.provider.lower()
        if signer.lower() != context.node_keys.get(leaf.provider.lower()) or not fits:
            return "NOT_SIGNED_BY_NODE_KEY"
        if leaf.status != 0:
            return "NOT_ELIGIBLE"
        ranks.append((leaf.score, tie_break(seed, leaf.provider)))
    return None if ranks == sorted(ranks) else "NOT_IN_ORDER"
