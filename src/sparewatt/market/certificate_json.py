"""A certificate out of the JSON that validators serve: form and ranges only. Pure.

Who signed is recovered from the votes, so the list of signers beside them is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.protocol.contracts.match import BidLeaf, OrderTerms, Task
from sparewatt.protocol.contracts.match_messages import Hash, SignedCommit, SignedVote, read_object


@dataclass(frozen=True, slots=True)
class _WrittenCertificate:
    task: Task
    round: int
    terms: OrderTerms
    leaves: tuple[BidLeaf, ...]
    paths: tuple[tuple[Hash, ...], ...]
    commits: tuple[SignedCommit, ...]
    votes: tuple[SignedVote, ...]


def read_certificate(document: object) -> QuorumCertificate:
    """With no signers: `certificate_check.counted_votes` tells them. Raises InvalidField."""
    if not isinstance(document, Mapping):
        raise InvalidField("A certificate is a JSON object.", param="certificate")
    written = {name: value for name, value in document.items() if name != "signers"}
    read: _WrittenCertificate = read_object(_WrittenCertificate, written)
    return QuorumCertificate(
        read.task, read.round, read.terms, read.leaves, read.paths, read.commits, read.votes, signers=()
    )
