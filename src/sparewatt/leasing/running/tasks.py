"""What a node is told about a lease: made of the market's state and what the renter has stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparewatt.leasing.relay.lookups import MarketAddresses, OrderedContent
from sparewatt.market.chain_records import LeaseRecord, LeaseState, MarketState, OrderRecord, UpdateTerms
from sparewatt.market.stand_ins import turn_at
from sparewatt.protocol.contracts.lease_acts import ActContracts
from sparewatt.protocol.contracts.match import NO_PROVIDER
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.contracts.reasons import CloseReason
from sparewatt.protocol.link.lease_tasks import LeaseTask, ProposedUpdate, TaskState

_PLACED_STATES = {
    LeaseState.PENDING: TaskState.PENDING,
    LeaseState.ACTIVE: TaskState.ACTIVE,
    LeaseState.PAUSED: TaskState.PAUSED,
}


def act_contracts_of(addresses: MarketAddresses | None) -> ActContracts | None:
    if addresses is None:
        return None
    return ActContracts(addresses.chain_id, addresses.deployment_order, addresses.lease_moves)


@dataclass(frozen=True, slots=True)
class TaskRole:
    """A provider and its part in a lease."""

    provider: str
    state: TaskState
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInputs:
    """What the chain's events do not tell."""

    ordered: OrderedContent
    """As the order's id covers it."""
    renter_nonce: int
    running: OrderedContent | None = None
    """After an accepted update."""
    proposed: OrderedContent | None = None
    nonces: Mapping[str, int] = field(default_factory=dict)
    """Of the node's key, by contract."""
    sealed: Mapping[str, str] = field(default_factory=dict)


def roles_of(state: MarketState, order_id: str) -> list[TaskRole]:
    """Who has something to do for this lease: the provider that has it, or the stand-ins while nobody has."""
    lease, order = state.leases.get(order_id), state.orders.get(order_id)
    if lease is None or order is None:
        return []
    placed = _PLACED_STATES.get(lease.state)
    if placed is not None and lease.provider is not None:
        return [TaskRole(lease.provider, placed, lease.position)]
    if lease.state is not LeaseState.VACANT or order.certificate is None:
        return []
    candidates = enumerate(order.certificate.record.chosen)
    return [
        TaskRole(award.provider, TaskState.VACANT, position)
        for position, award in candidates
        if position > lease.position and award.provider != NO_PROVIDER
    ]


def task_of(
    state: MarketState,
    order_id: str,
    role: TaskRole,
    inputs: TaskInputs,
    addresses: MarketAddresses,
    *,
    block_number: int,
) -> LeaseTask:
    order, lease = state.orders[order_id], state.leases[order_id]
    stream = state.streams.get(order_id)
    is_active = lease.state is LeaseState.ACTIVE
    return LeaseTask(
        order_id=order_id,
        attempt=order.attempt,
        term=lease.term,
        state=role.state,
        renter=order.renter,
        renter_nonce=inputs.renter_nonce,
        policy=write_message(order.terms),
        specification=write_message(inputs.ordered.specification),
        content=inputs.ordered.content,
        lease_moves=addresses.lease_moves,
        rate_uusd=lease.rate_uusd,
        confirm_by=lease.confirm_by,
        turn_at=turn_at(order, lease, role.position) if role.state is TaskState.VACANT else 0,
        position=role.position,
        paused_for_empty=lease.state is LeaseState.PAUSED and lease.pause_reason == CloseReason.EMPTY,
        may_close_at=lease.may_close_at,
        ends_at=stream.end_at if is_active and stream is not None else 0,
        acts_nonce=inputs.nonces.get(addresses.deployment_order, 0),
        moves_nonce=inputs.nonces.get(addresses.lease_moves, 0),
        sealed=dict(inputs.sealed),
        updated=_update(_running_terms(order, lease), inputs.running),
        proposed=_update(lease.proposed, inputs.proposed) if is_active else None,
        block_number=block_number,
    )


def over_task(told: LeaseTask, *, term: int, block_number: int) -> LeaseTask:
    """For a node that had a part in the lease and has none any more."""
    return LeaseTask(
        order_id=told.order_id,
        attempt=told.attempt,
        term=max(term, told.term),
        state=TaskState.OVER,
        renter=told.renter,
        renter_nonce=told.renter_nonce,
        policy=told.policy,
        specification=told.specification,
        content=told.content,
        lease_moves=told.lease_moves,
        rate_uusd=0,
        block_number=block_number,
    )


def _running_terms(order: OrderRecord, lease: LeaseRecord) -> UpdateTerms | None:
    """None while what was ordered runs."""
    if order.spec_hash == order.ordered_spec_hash:
        return None
    return UpdateTerms(order.spec_hash, lease.rate_uusd, order.terms.duration_s, lease.update_seq)


def _update(terms: UpdateTerms | None, content: OrderedContent | None) -> ProposedUpdate | None:
    if terms is None or content is None:
        return None
    return ProposedUpdate(
        spec_hash=terms.spec_hash,
        rate_uusd=terms.rate_uusd,
        duration_s=terms.duration_s,
        seq=terms.seq,
        specification=write_message(content.specification),
        content=content.content,
    )
