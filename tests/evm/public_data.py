"""What third parties see of a match on the EVM: its context, and messages as validators and bidders sign them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.evidence_calls import evidence_calls
from sparewatt.market.faults import ProvenFault
from sparewatt.market.match.model import AuctionContext
from sparewatt.market.rule import BidBook, bid_id_of, commit_of
from sparewatt.protocol.contracts.match import Bid, BidTerms, CommitList, RevealList, Specification, Task, Vote
from sparewatt.protocol.contracts.match_messages import (
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
)
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import Order
from tests.evm.network import MIN_STAKE, Network, Provider, Validator, key

CHALLENGER = key(71).address
SPECIFICATION = Specification(b"\6" * 32, 1, 1000, 1024, 1024, 0, 0)
TERMS = BidTerms(1, 3, 24, 1000, 1024, 1024, 0, 0, 0, 0, 100)


def chain_context(order: Order) -> AuctionContext:
    network = order.network
    assert network.snapshot is not None
    return AuctionContext(
        domain=network.domain(network.tasks),
        order_id=order.order_id,
        attempt=order.attempt,
        terms=order.policy,
        policy_hash=struct_hash(order.policy),
        spec_hash=b"\3" * 32,
        snapshot_epoch=network.epoch,
        snapshot_root=network.snapshot.root,
        stake_version=order.stake_version,
        weights={validator.vote_key.address.lower(): MIN_STAKE for validator in network.validators},
        profiles={profile.provider.lower(): profile for profile in network.profiles},
        node_keys={provider.address.lower(): provider.node_key.address.lower() for provider in network.providers},
    )


def history_indices(network: Network) -> dict[str, int]:
    return {validator.vote_key.address.lower(): validator.history_index for validator in network.validators}


def revealed(bid: Bid) -> RevealedBid:
    return RevealedBid(bid, TERMS, SPECIFICATION)


def commit(order: Order, provider: Provider, bid: Bid) -> SignedCommit:
    sealed = commit_of(bid)
    return SignedCommit(sealed, order.network.signed(provider.node_key, order.network.tasks, sealed))


def commit_list(order: Order, validator: Validator, commits: Sequence[SignedCommit]) -> SignedCommitList:
    listed = CommitList(order.order_id, order.attempt, tuple(sorted(each.commit.bid_id for each in commits)))
    signature = order.network.signed(validator.vote_key, order.network.tasks, listed)
    return SignedCommitList(listed, signature, tuple(commits))


def reveal_list(order: Order, validator: Validator, bids: Sequence[Bid]) -> SignedRevealList:
    listed = RevealList(order.order_id, order.attempt, tuple(sorted(map(bid_id_of, bids))))
    signature = order.network.signed(validator.vote_key, order.network.tasks, listed)
    return SignedRevealList(listed, signature, tuple(map(revealed, bids)), ())


def vote(order: Order, validator: Validator, task: Task, *, round_: int = 0) -> SignedVote:
    cast = Vote(order.order_id, order.attempt, round_, struct_hash(task))
    return SignedVote(cast, order.network.signed(validator.vote_key, order.network.tasks, cast))


def proposal(order: Order, validator: Validator, book: BidBook, task: Task) -> Proposal:
    return Proposal(vote(order, validator, task), task, book.leaves, (), (), ())


def prove(network: Network, faults: Iterable[ProvenFault]) -> None:
    """A third party sends every proof, as the product encodes it."""
    deployed = {"dispute": network.dispute, "dispute_book": network.book}
    contracts = Contracts(shipped_abis(), {name: contract.address for name, contract in deployed.items()})
    faults = tuple(faults)
    for fault, call in zip(faults, evidence_calls(contracts, faults), strict=True):
        contract = deployed[fault.contract]
        assert call.to.lower() == contract.address
        contract.raw(call.data, who=CHALLENGER)


def slashed_keys(network: Network) -> set[str]:
    return {
        validator.vote_key.address.lower()
        for validator in network.validators
        if network.stakes.validator_of(validator.operator.address)[1] < MIN_STAKE
    }
