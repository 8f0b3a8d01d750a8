"""Whether a certificate holds: votes of a quorum, and candidates of its tree. Pure: who served it does not matter."""

from __future__ import annotations

from collections.abc import Mapping

from sparewatt.market.match.model import QuorumCertificate
from sparewatt.market.quorum import is_quorum
from sparewatt.protocol.contracts.match import NO_LEAF
from sparewatt.protocol.contracts.match_messages import SignedVote
from sparewatt.protocol.contracts.merkle import verify_proof
from sparewatt.protocol.signing import BadSignature, Domain, recover_address
from sparewatt.protocol.typed_message import message_digest, struct_hash


def counted_votes(certificate: QuorumCertificate, weights: Mapping[str, int], domain: Domain) -> dict[str, SignedVote]:
    """By signer, ascending: the votes for this task in this round, by keys that weigh."""
    task, found = certificate.task, dict[str, SignedVote]()
    wanted = (task.order_id, task.attempt, certificate.round, struct_hash(task))
    for signed in certificate.votes:
        vote = signed.vote
        if (vote.order_id, vote.attempt, vote.round, vote.task_hash) != wanted:
            continue
        try:
            signer = recover_address(message_digest(domain, vote), signed.signature).lower()
        except BadSignature:
            continue
        if weights.get(signer, 0) > 0:
            found[signer] = signed
    return {signer: found[signer] for signer in sorted(found)}


def has_quorum(certificate: QuorumCertificate, weights: Mapping[str, int], domain: Domain) -> bool:
    counted = counted_votes(certificate, weights, domain)
    return is_quorum(sum(weights[signer] for signer in counted), total=sum(weights.values()))


def has_its_candidates(certificate: QuorumCertificate) -> bool:
    """Whether its leaves are those that the voted task names, each at its place in the voted tree."""
    task = certificate.task
    indices = [index for index in (task.first, task.second, task.third) if index != NO_LEAF]
    if not len(indices) == len(certificate.leaves) == len(certificate.paths) == len(certificate.commits):
        return False
    return all(
        verify_proof(root=task.bid_root, count=task.bid_count, leaf=struct_hash(leaf), index=index, path=path)
        for index, leaf, path in zip(indices, certificate.leaves, certificate.paths, strict=True)
    )
