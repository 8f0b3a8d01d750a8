"""Which certificates the chain's process submits, and as which call. Pure.

Who submits does not matter: the contract takes the first one. The leader sends it at once and this process a moment
later, so that a leader that died does not cost the attempt.
"""

from __future__ import annotations

from sparewatt.evm.certificate_call import certificate_call
from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import ContractCall
from sparewatt.market.certificate_check import counted_votes, has_its_candidates, has_quorum
from sparewatt.market.chain_records import MarketState, OrderState
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.protocol.signing import Domain

GRACE_S = 0.3
"""How long the leader has for itself: a transaction that is already on its way need not be sent twice."""


def is_wanted(state: MarketState, certificate: QuorumCertificate) -> bool:
    """Whether the chain still waits for a certificate of this attempt."""
    order = state.orders.get("0x" + certificate.task.order_id.hex())
    if order is None or order.state is not OrderState.OPEN:
        return False
    return (order.attempt, order.stake_version) == (certificate.task.attempt, certificate.task.stake_version)


def checked_certificate_call(
    tasks: Contract, certificate: QuorumCertificate, state: MarketState, domain: Domain
) -> ContractCall | None:
    """None if its votes are not those of a quorum, or a candidate's part is missing: the contract would refuse it."""
    try:
        weights = {each.vote_key: each for each in state.weights_at(certificate.task.stake_version)}
    except KeyError:
        return None
    by_key = {vote_key: each.weight for vote_key, each in weights.items()}
    if not has_its_candidates(certificate) or not has_quorum(certificate, by_key, domain):
        return None
    votes = counted_votes(certificate, by_key, domain)
    signed = [(vote.signature, weights[signer].history_index) for signer, vote in votes.items()]
    return certificate_call(tasks, certificate, signed)
