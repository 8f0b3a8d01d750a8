"""What the chain's state says of an attempt and of those who bid in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparewatt.core.errors import InvalidField
from sparewatt.market.bonds import commit_needs_uusd
from sparewatt.market.chain_records import (
    BondRecord,
    LeaseState,
    MarketState,
    OrderRecord,
    OrderState,
    RegistryStatus,
)
from sparewatt.market.match.model import AuctionContext, BidderStanding
from sparewatt.market.rule import snapshot_tree
from sparewatt.protocol.contracts.match import Profile
from sparewatt.protocol.contracts.message_ranges import require_in_range
from sparewatt.protocol.signing import Domain
from sparewatt.protocol.typed_message import struct_hash


class ContextUnavailable(ValueError):
    """The chain's state does not have, or does not agree with, what a match needs."""


def context_of(state: MarketState, order_id: str, *, domain: Domain, table: Sequence[Profile]) -> AuctionContext:
    """Of the order's newest attempt. Raises ContextUnavailable, also if the table is not that of the snapshot."""
    order = state.orders.get(order_id.lower())
    if order is None or order.state is not OrderState.OPEN:
        raise ContextUnavailable("the order is not open")
    snapshot = state.snapshots.get(order.snapshot_epoch)
    if snapshot is None:
        raise ContextUnavailable(f"the snapshot of epoch {order.snapshot_epoch} is not known")
    root = _root_of(table)
    if root != bytes.fromhex(snapshot.root[2:]):
        raise ContextUnavailable(f"the table of epoch {order.snapshot_epoch} does not hash to the snapshot's root")
    opened_at = order.opened_at[order.attempt]
    keys = ((provider, record.node_key_at(opened_at)) for provider, record in state.providers.items())
    return AuctionContext(
        domain=domain,
        order_id=bytes.fromhex(order.order_id[2:]),
        attempt=order.attempt,
        terms=order.terms,
        policy_hash=struct_hash(order.terms),
        spec_hash=bytes.fromhex(order.spec_hash[2:]),
        snapshot_epoch=order.snapshot_epoch,
        snapshot_root=root,
        stake_version=order.stake_version,
        weights=_weights(state, order.stake_version),
        profiles={profile.provider.lower(): profile for profile in table},
        node_keys={provider.lower(): key.lower() for provider, key in keys if key is not None},
    )


def _root_of(table: Sequence[Profile]) -> bytes:
    try:
        for profile in table:
            require_in_range(profile)
        return snapshot_tree(table)[1].root
    except InvalidField as error:
        raise ContextUnavailable(f"the snapshot's table is out of range: {error}") from None


def _weights(state: MarketState, version: int) -> dict[str, int]:
    try:
        weights = {each.vote_key.lower(): each.weight for each in state.weights_at(version)}
    except KeyError:
        raise ContextUnavailable(f"stake version {version} is not known") from None
    if not weights:
        raise ContextUnavailable(f"no validator has weight at stake version {version}")
    return weights


def standing_of(state: MarketState, provider: str, *, order_id: str, open_commits: Collection[str]) -> BidderStanding:
    """`open_commits`: ids of the open orders in which this validator holds a commit of the provider."""
    provider = provider.lower()
    record, order = state.providers.get(provider), state.orders.get(order_id.lower())
    if record is None:
        return BidderStanding.NOT_REGISTERED
    if record.status is not RegistryStatus.ACTIVE:
        return BidderStanding.NOT_ACTIVE
    if order is not None and provider in order.failed:
        return BidderStanding.FAILED_BEFORE
    bidding = {each.lower() for each in open_commits} | {order_id.lower()}
    backed = [each for key, each in state.orders.items() if key in bidding or may_claim(state, each, provider)]
    needed = commit_needs_uusd(each.terms.max_price_uusd for each in backed)
    free = state.bonds.get(provider, BondRecord()).free_uusd
    return BidderStanding.GOOD if free >= needed else BidderStanding.UNBONDED


def may_claim(state: MarketState, order: OrderRecord, provider: str) -> bool:
    """Whether a stand-in of the order's certificate could still be given its lease, by its own claim."""
    lease = state.leases.get(order.order_id)
    if order.state is not OrderState.MATCHED or order.certificate is None or lease is None:
        return False
    if lease.state in (LeaseState.CLOSED, LeaseState.UNPLACED):
        return False
    later = order.certificate.record.chosen[lease.position + 1 :]
    return any(award.provider.lower() == provider for award in later)
