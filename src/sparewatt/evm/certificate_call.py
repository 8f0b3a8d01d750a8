"""A certificate of a match as a call of `task_manager`, which takes the first one, whoever sends it."""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import ContractCall
from sparewatt.market.match.model import QuorumCertificate


def certificate_call(
    task_manager: Contract, certificate: QuorumCertificate, votes: Sequence[tuple[bytes, int]]
) -> ContractCall:
    """`votes`: signatures ascending by signer, each with the place of its weight in the signer's history."""
    task, round_ = certificate.task.values(), certificate.round
    if not certificate.leaves:
        return task_manager.encode_call("accept_no_match", task, round_, list(votes))
    parts = zip(certificate.leaves, certificate.paths, certificate.commits, strict=True)
    candidates = [(leaf.values(), list(path), commit.signature) for leaf, path, commit in parts]
    values = (task, round_, certificate.terms.values(), candidates, list(votes))
    return task_manager.encode_call("accept_match", *values)
