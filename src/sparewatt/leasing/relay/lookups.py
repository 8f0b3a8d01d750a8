"""What a gateway sends to nodes that offer leases: facts of the market, lookups and outcomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparewatt.market.chain_records import LeaseState, MarketState, OrderRecord, OrderState
from sparewatt.protocol.contracts.match import NO_PROVIDER, Specification, order_id_of
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.link.lease_frames import (
    LEASES_HELD_MAX,
    URL_CHARS_MAX,
    VALIDATORS_MAX,
    HeldLease,
    LeaseLookup,
    LeaseOutcome,
    MarketFacts,
    ValidatorPeer,
)
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.trust.renter_record import RenterRecord

NONCES_TRIED_MAX = 20_000
"""A renter's orders are numbered; one with more is not found here, and other gateways may relay it."""
HELD_STATES = frozenset({LeaseState.PENDING, LeaseState.ACTIVE, LeaseState.PAUSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketAddresses:
    """Of the chain and its contracts, as the index has them."""

    chain_id: int
    task_manager: str
    deployment_order: str
    stake_registry: str
    lease_moves: str


@dataclass(frozen=True, slots=True)
class OrderedContent:
    """What an order's specification hash stands for."""

    specification: Specification
    content: str


def is_content_of(order: OrderRecord, ordered: OrderedContent) -> bool:
    """Whether it hashes to what the chain has. Whoever stored something else must not have nodes bid on it."""
    is_specified = "0x" + struct_hash(ordered.specification).hex() == order.spec_hash
    return is_specified and keccak256(ordered.content.encode()) == ordered.specification.content_hash


def find_renter_nonce(order: OrderRecord, addresses: MarketAddresses, *, start: int, tries: int) -> int | None:
    """The number of the renter's order that its id was made with, tried from `start` on."""
    wanted, policy_hash = bytes.fromhex(order.order_id[2:]), struct_hash(order.terms)
    spec_hash = bytes.fromhex((order.ordered_spec_hash or order.spec_hash)[2:])
    for nonce in range(start, start + tries):
        found = order_id_of(
            chain_id=addresses.chain_id,
            orders=addresses.deployment_order,
            renter=order.renter,
            renter_nonce=nonce,
            policy_hash=policy_hash,
            spec_hash=spec_hash,
        )
        if found == wanted:
            return nonce
    return None


def lookup_of(
    state: MarketState, order: OrderRecord, ordered: OrderedContent, *, renter_nonce: int, block_number: int
) -> LeaseLookup:
    record = state.renters.get(order.renter, RenterRecord())
    return LeaseLookup(
        order_id=order.order_id,
        attempt=order.attempt,
        renter=order.renter,
        renter_nonce=renter_nonce,
        policy=write_message(order.terms),
        specification=write_message(ordered.specification),
        content=ordered.content,
        stake_version=order.stake_version,
        weights=weights_of(state, order.stake_version),
        opened_at=order.opened_at[order.attempt],
        block_number=block_number,
        renter_orders=record.orders,
        renter_broken=record.broken,
    )


def weights_of(state: MarketState, version: int) -> dict[str, int]:
    """By vote key; empty for a version that is too old to be known."""
    try:
        return {each.vote_key: each.weight for each in state.weights_at(version)[:VALIDATORS_MAX]}
    except KeyError:
        return {}


def validator_urls(state: MarketState, version: int) -> dict[str, str]:
    """By vote key: where the validators with weight at a stake version take messages. Their own words."""
    try:
        weights = state.weights_at(version)[:VALIDATORS_MAX]
    except KeyError:
        return {}
    operators = {each.vote_key: state.validators.get(each.operator) for each in weights}
    return {vote_key: validator.url for vote_key, validator in operators.items() if validator is not None}


def facts_of(
    state: MarketState, addresses: MarketAddresses, *, beat_ms: int, attempt_s: int, block_number: int
) -> MarketFacts:
    """What is the same for every node; `provider` and `held` are the node's own."""
    weights = weights_of(state, state.stake_version)
    urls = validator_urls(state, state.stake_version)
    peers = [ValidatorPeer(vote_key, url, weights[vote_key]) for vote_key, url in urls.items() if is_url(url)]
    return MarketFacts(
        chain_id=addresses.chain_id,
        task_manager=addresses.task_manager,
        deployment_order=addresses.deployment_order,
        stake_registry=addresses.stake_registry,
        provider=None,
        stake_version=state.stake_version,
        validators=tuple(peers),
        beat_ms=beat_ms,
        attempt_s=attempt_s,
        block_number=block_number,
    )


def is_url(text: str) -> bool:
    """Whether a node's frame can carry it: one validator's nonsense must not end every link."""
    is_web = text.startswith(("https://", "http://")) and len(text) <= URL_CHARS_MAX
    return is_web and len(text.partition("//")[2]) > 0 and all("!" <= char <= "~" for char in text)


def held_leases(state: MarketState, holders: Mapping[str, str]) -> dict[str, tuple[HeldLease, ...]]:
    """By provider: the leases that the chain has with it. `holders` has the providers by order."""
    found: dict[str, tuple[HeldLease, ...]] = {}
    for order_id, provider in holders.items():
        before = found.get(provider, ())
        found[provider] = (*before, HeldLease(order_id, state.leases[order_id].term))[:LEASES_HELD_MAX]
    return found


def holder_of(state: MarketState, order_id: str) -> str | None:
    """The provider that has the lease."""
    lease = state.leases.get(order_id)
    return lease.provider if lease is not None and lease.state in HELD_STATES else None


def is_open(state: MarketState, order_id: str, attempt: int) -> bool:
    order = state.orders.get(order_id)
    return order is not None and order.state is OrderState.OPEN and order.attempt == attempt


def outcome_of(state: MarketState, order_id: str, attempt: int, *, provider: str, block_number: int) -> LeaseOutcome:
    """How an attempt that is over ended for a provider."""
    order, lease, holder = state.orders.get(order_id), state.leases.get(order_id), holder_of(state, order_id)
    if order is None or order.attempt != attempt or lease is None or holder is None:
        return LeaseOutcome(order_id=order_id, attempt=attempt, result="none", block_number=block_number)
    chosen = order.certificate.record.chosen if order.certificate is not None else ()
    is_candidate = any(award.provider == provider != NO_PROVIDER for award in chosen)
    return LeaseOutcome(
        order_id=order_id,
        attempt=attempt,
        result="won" if provider == holder else "standby" if is_candidate else "lost",
        provider=holder,
        term=lease.term,
        pay_uusd=lease.rate_uusd,
        block_number=block_number,
    )


def ended_lease(state: MarketState, order_id: str, *, block_number: int) -> LeaseOutcome:
    """For a provider that had the lease and has it no more."""
    order, lease = state.orders.get(order_id), state.leases.get(order_id)
    return LeaseOutcome(
        order_id=order_id,
        attempt=order.attempt if order is not None else 0,
        result="ended",
        provider=holder_of(state, order_id),
        term=lease.term if lease is not None else 0,
        block_number=block_number,
    )
