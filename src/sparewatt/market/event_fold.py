"""The fold of chain events into the market's state: one event in, one change of the state. Pure.

Each contract's events are facts, so nothing is checked again here. What an event says of an order that the state does
not have (it ended long ago) is left out. The state depends on the sequence of events only, not on how it was divided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparewatt.market.chain_records import (
    ENDED_ORDER_STATES,
    AcceptedCertificate,
    Attestation,
    BondRecord,
    LeaseRecord,
    LeaseState,
    LeaseTerm,
    MarketState,
    NodeKeyChange,
    OrderRecord,
    OrderState,
    ProviderRecord,
    RegisteredClaims,
    RegistryStatus,
    SnapshotRecord,
    UpdateTerms,
    ValidatorRecord,
    WeightChange,
    WeightHistory,
)
from sparewatt.market.lease_uptime import UptimeSpan, down_from, running_from, turned
from sparewatt.market.reopening import next_attempt_at
from sparewatt.market.stream_fold import STREAM_HANDLERS
from sparewatt.market.voting_record import CertificateVotes, count_votes
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import NO_PROVIDER, Award, CertificateRecord, OrderTerms, Task
from sparewatt.protocol.contracts.reasons import CloseReason, HandOverReason, OrderOutcome
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.trust.lease_record import EARLY_S, EndedTerm, TermResult, keep_term
from sparewatt.trust.renter_record import RenterRecord

ENDED_ORDERS_KEPT = 100_000
"""Orders and leases that ended, for statements and evidence; about 200 MB."""
ATTEMPTS_KEPT = 32
"""Opening times of one order's attempts. A renter may reopen more often; evidence is about the newest."""
NODE_KEYS_KEPT = 8
"""Changes of one provider's node key; there is one per ATTEMPT_S at most, so this covers every open attempt."""
ATTESTATIONS_MAX = 256
"""Of one provider. Auditors are few: a guardian allows them."""
STAKE_VERSIONS_KEPT = 10_000
"""More than come in the time for evidence; an older attempt is decided for good."""
RENTERS_KEPT = 10_000
SNAPSHOTS_KEPT = 1_024


class UnreadableEvent(ValueError):
    """An event does not have what this release's contracts put into it."""


def apply_event(state: MarketState, event: ChainEvent) -> None:
    """Events that change nothing of the market are passed over. Raises UnreadableEvent."""
    apply = _HANDLERS.get((event.contract, event.event))
    if apply is None:
        return
    try:
        apply(state, event)
    except (KeyError, TypeError, ValueError) as error:
        name = f"{event.contract}.{event.event}"
        raise UnreadableEvent(f"{name} in block {event.block_number} is not of this release") from error


# Orders


def _provider_lookup(state: MarketState, event: ChainEvent) -> None:
    args, attempt = event.args, event.args["attempt"]
    order_id = args["order_id"]
    old = state.orders.get(order_id)
    if old is None:
        _note_order(state, args["renter"])
    opened_at = {**(old.opened_at if old else {}), attempt: event.unix_s}
    state.orders[order_id] = OrderRecord(
        order_id=order_id,
        renter=args["renter"],
        state=OrderState.OPEN,
        attempt=attempt,
        terms=_terms(args["policy"]),
        spec_hash=args["spec_hash"],
        stake_version=args["stake_version"],
        snapshot_epoch=args["snapshot_epoch"],
        expires_at=args["expires_at"],
        max_attempts=args["max_attempts"],
        created_at=old.created_at if old else event.unix_s,
        opened_at=dict(list(opened_at.items())[-ATTEMPTS_KEPT:]),
        ordered_spec_hash=old.ordered_spec_hash if old else args["spec_hash"],
        certificate=None,
        failed=old.failed if old else frozenset(),
    )
    _note_unplaced(state, order_id, event)


def _note_unplaced(state: MarketState, order_id: str, event: ChainEvent) -> None:
    """A lease without a provider waits for its renter, unless an auction is open or one opens by itself."""
    lease, order = state.leases.get(order_id), state.orders.get(order_id)
    if lease is None or order is None or lease.state is not LeaseState.UNPLACED:
        return
    if lease.uptime.span is UptimeSpan.PAUSED:
        return  # its renter did not want it to run
    has_auction = order.state is OrderState.OPEN or next_attempt_at(state, order) is not None
    span = UptimeSpan.DOWN if has_auction else UptimeSpan.WAITING
    state.leases[order_id] = replace(lease, uptime=turned(lease.uptime, span, at=event.unix_s))


def _note_order(state: MarketState, renter: str) -> None:
    """Renters are kept in the order of their newest orders."""
    record = state.renters.pop(renter, RenterRecord())
    state.renters[renter] = replace(record, orders=record.orders + 1)
    if len(state.renters) > RENTERS_KEPT:
        del state.renters[next(iter(state.renters))]


def _terms(values: list[Any]) -> OrderTerms:
    *fields, only, ignore = values
    members: list[Any] = [*map(_field, fields), tuple(only), tuple(ignore)]
    return OrderTerms(*members)


def _field(value: Any) -> Any:
    """A member of a struct: hashes are text in an event, and bytes in a message."""
    return bytes.fromhex(value[2:]) if isinstance(value, str) else value


def _match_accepted(state: MarketState, event: ChainEvent) -> None:
    first, second, third = (Award(provider, price) for provider, price in event.args["chosen"])
    _certified(state, event, (first, second, third))


def _no_match(state: MarketState, event: ChainEvent) -> None:
    """The order's own event says that it is unmatched."""
    nobody = Award(NO_PROVIDER, 0)
    _certified(state, event, (nobody, nobody, nobody))


def _certified(state: MarketState, event: ChainEvent, chosen: tuple[Award, Award, Award]) -> None:
    args, task = event.args, Task(*map(_field, event.args["task"]))
    _count_votes(state, event, task)
    order = state.orders.get(args["order_id"])
    if order is None:
        return
    record = CertificateRecord(struct_hash(task), args["round"], chosen)
    certificate = AcceptedCertificate(args["attempt"], record, task.bid_count, tuple(args["signers"]), event.unix_s)
    state.orders[order.order_id] = replace(order, certificate=certificate)


def _count_votes(state: MarketState, event: ChainEvent, task: Task) -> None:
    """Not of an attempt whose stake version is too old to be kept: who could vote is not known any more."""
    if task.stake_version in state.totals:
        voters = state.weights_at(task.stake_version)
        count_votes(state.voting, CertificateVotes(voters, frozenset(event.args["signers"]), event.unix_s))


def _candidate_skipped(state: MarketState, event: ChainEvent) -> None:
    if event.args["suspended"]:
        return
    _note_failed(state, event.args["order_id"], event.args["provider"])
    order = state.orders.get(event.args["order_id"])
    if order is not None:
        ended = EndedTerm(order.renter, TermResult.UNBONDED, 0, 0, event.unix_s)
        _note_term(state, event.args["provider"], ended)


def _note_failed(state: MarketState, order_id: str, provider: str) -> None:
    order = state.orders.get(order_id)
    if order is not None:
        state.orders[order_id] = replace(order, failed=order.failed | {provider})


def _order_unmatched(state: MarketState, event: ChainEvent) -> None:
    order = state.orders.get(event.args["order_id"])
    if order is not None:
        state.orders[order.order_id] = replace(order, state=OrderState.UNMATCHED, reason=event.args["reason"])
        _note_unplaced(state, order.order_id, event)


def _attempt_expired(state: MarketState, event: ChainEvent) -> None:
    if event.args["final"]:
        _end_order(state, event.args["order_id"], OrderState.EXPIRED)


def _order_cancelled(state: MarketState, event: ChainEvent) -> None:
    """Also after an auction that nobody won: what ended it is the renter."""
    order = state.orders.get(event.args["order_id"])
    if order is not None:
        state.orders[order.order_id] = replace(order, reason=int(OrderOutcome.CANCELLED))
        record = state.renters.get(order.renter)
        if record is not None and order.state is OrderState.OPEN:  # bids come within a second or two
            state.renters[order.renter] = replace(record, withdrawn=record.withdrawn + 1)
    _end_order(state, event.args["order_id"], OrderState.CLOSED)


def _end_order(state: MarketState, order_id: str, end: OrderState) -> None:
    """The first end counts: an expired order's lease is closed in the same transaction."""
    order = state.orders.get(order_id)
    if order is None or order.state in ENDED_ORDER_STATES:
        return
    state.orders[order_id] = replace(order, state=end)
    state.ended_orders[order_id] = None
    if len(state.ended_orders) > ENDED_ORDERS_KEPT:
        oldest = next(iter(state.ended_orders))
        for records in (state.ended_orders, state.orders, state.leases, state.streams):
            records.pop(oldest, None)


# Leases


def _lease_created(state: MarketState, event: ChainEvent) -> None:
    args = event.args
    lease_id = args["lease_id"]
    order, old = state.orders.get(lease_id), state.leases.get(lease_id)
    if order is None:
        return
    state.orders[lease_id] = replace(order, state=OrderState.MATCHED, reason=None)
    first = LeaseRecord(
        lease_id=lease_id,
        renter=order.renter,
        state=LeaseState.PENDING,
        provider=args["provider"],
        term=args["term"],
        position=args["position"],
        rate_uusd=args["rate_uusd"],
        locked_uusd=args["locked_uusd"],
        confirm_by=args["confirm_by"],
        created_at=event.unix_s,
        terms=(LeaseTerm(args["provider"], event.unix_s),),
    )
    state.leases[lease_id] = first if old is None else _next_term(old, first)


def _next_term(old: LeaseRecord, given: LeaseRecord) -> LeaseRecord:
    """Of the terms before, the contract keeps the times; the new provider has confirmed nothing yet."""
    return replace(
        old,
        terms=(*old.terms, *given.terms),
        state=given.state,
        provider=given.provider,
        term=given.term,
        position=given.position,
        rate_uusd=given.rate_uusd,
        locked_uusd=given.locked_uusd,
        confirm_by=given.confirm_by,
        resumed=False,
        details_hash=None,
        proposed=None,
        ran_s=0,
        earned_uusd=0,
    )


_LeaseChange = Callable[[LeaseRecord, ChainEvent], LeaseRecord]


def _of_lease(change: _LeaseChange) -> Callable[[MarketState, ChainEvent], None]:
    def apply(state: MarketState, event: ChainEvent) -> None:
        lease = state.leases.get(event.args["lease_id"])
        if lease is not None:
            state.leases[lease.lease_id] = change(lease, event)

    return apply


def _confirmed(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    details = event.args["details_hash"]
    uptime = running_from(lease.uptime, at=event.unix_s, rate_uusd=lease.rate_uusd)
    return replace(lease, state=LeaseState.ACTIVE, running_since=event.unix_s, details_hash=details, uptime=uptime)


def _counted(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    """With the seconds that it ran until now."""
    if lease.state is not LeaseState.ACTIVE:
        return lease
    ran_s = max(0, event.unix_s - lease.running_since)
    earned_uusd = lease.rate_uusd * ran_s // 3_600
    return replace(lease, ran_s=lease.ran_s + ran_s, earned_uusd=lease.earned_uusd + earned_uusd)


def _paused(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    lease = _counted(lease, event)
    uptime = turned(lease.uptime, UptimeSpan.PAUSED, at=event.unix_s)
    return replace(
        lease, state=LeaseState.PAUSED, paused_at=event.unix_s, pause_reason=event.args["reason"], uptime=uptime
    )


def _resumed(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    lease = _count_pause(lease, event)
    return replace(lease, state=LeaseState.PENDING, resumed=True, confirm_by=event.args["confirm_by"])


def _count_pause(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    """With the seconds of a pause that ends now."""
    if lease.state is not LeaseState.PAUSED:
        return lease
    return replace(lease, paused_s=lease.paused_s + max(0, event.unix_s - lease.paused_at))


def _noticed(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    return replace(lease, notice_at=event.unix_s, may_close_at=event.args["may_close_at"])


def _unplaced(lease: LeaseRecord, _event: ChainEvent) -> LeaseRecord:
    return replace(lease, state=LeaseState.UNPLACED)


def _lease_unplaced(state: MarketState, event: ChainEvent) -> None:
    _of_lease(_unplaced)(state, event)
    order = state.orders.get(event.args["lease_id"])
    if order is not None:
        state.orders[order.order_id] = replace(order, expires_at=event.args["expires_at"])


def _with_term_ended(lease: LeaseRecord, event: ChainEvent) -> tuple[LeaseTerm, ...]:
    """Once: a lease that is closed without a provider ends nobody's term."""
    *before, last = lease.terms
    return lease.terms if last.left_at is not None else (*before, replace(last, left_at=event.unix_s))


def _vacated(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    return replace(
        _count_pause(lease, event),
        terms=_with_term_ended(lease, event),
        state=LeaseState.VACANT,
        provider=None,
        locked_uusd=0,
        notice_at=0,
        may_close_at=0,
        vacated_at=event.unix_s,
        confirm_by=event.args["claim_by"],
        hand_over_reason=event.args["reason"],
    )


def _lease_handed_over(state: MarketState, event: ChainEvent) -> None:
    args = event.args
    lease = state.leases.get(args["lease_id"])
    if lease is not None:
        _end_term(state, _counted(lease, event), args["provider"], _hand_over_result(event), event)
        state.leases[lease.lease_id] = _without_provider(state, lease, event)
    _of_lease(_vacated)(state, event)
    if args["compensation"] > 0:
        _note_failed(state, args["lease_id"], args["provider"])


def _without_provider(state: MarketState, lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    """Down from now on; if validators say so, from the second that they paid it until. A pause stays one."""
    if lease.state is LeaseState.PAUSED:
        return lease
    at = since = event.unix_s
    if event.args["reason"] == HandOverReason.DOWN:
        since = _down_since(state, lease.lease_id, at=at)
    return replace(lease, uptime=down_from(lease.uptime, since=since, at=at))


def _down_since(state: MarketState, lease_id: str, *, at: int) -> int:
    """No event names it, but the pay was stopped there: at least `down_s` ago, and earlier if it was paid less."""
    order, stream = state.orders.get(lease_id), state.streams.get(lease_id)
    latest = at - (order.terms.down_s if order is not None else 0)
    paid_until = stream.paid_until if stream is not None else None
    return latest if paid_until is None else min(latest, paid_until)


def _hand_over_result(event: ChainEvent) -> TermResult:
    """Whoever owes nothing kept to the rules: it gave notice, or was not promised a restart."""
    if event.args["reason"] == HandOverReason.DOWN:
        return TermResult.DOWN
    if event.args["compensation"] == 0:
        return TermResult.SERVED
    no_start = event.args["reason"] == HandOverReason.NO_START
    return TermResult.NO_START if no_start else TermResult.RESIGNED


def _end_term(state: MarketState, lease: LeaseRecord, provider: str, result: TermResult, event: ChainEvent) -> None:
    """A term that never ran and broke no promise says nothing of its provider."""
    if result is TermResult.SERVED and lease.ran_s == 0:
        return
    _note_term(state, provider, EndedTerm(lease.renter, result, lease.ran_s, lease.earned_uusd, event.unix_s))


def _note_term(state: MarketState, provider: str, ended: EndedTerm) -> None:
    """A provider that is its own renter shows nothing."""
    if ended.renter != provider:
        state.ended_terms[provider] = keep_term(state.ended_terms.get(provider, ()), ended)


def _update_proposed(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    args = event.args
    return replace(lease, proposed=UpdateTerms(args["spec_hash"], args["rate_uusd"], args["duration_s"], args["seq"]))


def _lease_updated(state: MarketState, event: ChainEvent) -> None:
    args = event.args
    order, lease = state.orders.get(args["lease_id"]), state.leases.get(args["lease_id"])
    if order is None or lease is None:
        return
    state.orders[order.order_id] = replace(order, spec_hash=args["spec_hash"])
    state.leases[lease.lease_id] = replace(
        _counted(lease, event),
        uptime=running_from(lease.uptime, at=event.unix_s, rate_uusd=args["rate_uusd"]),
        rate_uusd=args["rate_uusd"],
        running_since=event.unix_s,
        update_seq=args["seq"],
        proposed=None,
    )


def _closed(lease: LeaseRecord, event: ChainEvent) -> LeaseRecord:
    reason = event.args["reason"]
    lease = _count_pause(_counted(lease, event), event)
    return replace(
        lease,
        state=LeaseState.CLOSED,
        locked_uusd=0,
        closed_at=event.unix_s,
        close_reason=reason,
        uptime=turned(lease.uptime, UptimeSpan.ENDED, at=event.unix_s),
        terms=_with_term_ended(lease, event),
    )


def _lease_closed(state: MarketState, event: ChainEvent) -> None:
    _of_lease(_closed)(state, event)
    lease = state.leases.get(event.args["lease_id"])
    if lease is not None and lease.provider is not None:
        has_run = lease.details_hash is not None
        record = state.renters.get(lease.renter)
        if record is not None and not has_run and event.args["reason"] == CloseReason.RENTER:
            state.renters[lease.renter] = replace(record, unstarted=record.unstarted + 1)
        early = has_run and lease.ran_s < EARLY_S and event.args["reason"] == CloseReason.RENTER
        _end_term(state, lease, lease.provider, TermResult.LEFT_EARLY if early else TermResult.SERVED, event)
    _end_order(state, event.args["lease_id"], OrderState.CLOSED)


# Providers


def _provider_registered(state: MarketState, event: ChainEvent) -> None:
    """Who left and registers again starts anew, with the node keys it had."""
    provider = event.args["provider"]
    old = state.providers.get(provider)
    state.providers[provider] = ProviderRecord(
        provider=provider,
        status=RegistryStatus.REGISTERED,
        registered_at=event.unix_s,
        node_keys=old.node_keys if old else (),
        attestations=old.attestations if old else {},
        claims=old.claims if old else None,
    )


def _provider(state: MarketState, event: ChainEvent) -> ProviderRecord:
    """A provider's other events may come before the one that says it registered, in the same transaction."""
    provider = event.args["provider"]
    known = state.providers.get(provider)
    return known or ProviderRecord(provider=provider, status=RegistryStatus.REGISTERED, registered_at=event.unix_s)


def _claims_changed(state: MarketState, event: ChainEvent) -> None:
    provider = _provider(state, event)
    state.providers[provider.provider] = replace(provider, claims=RegisteredClaims(*event.args["claims"]))


def _status_changed(state: MarketState, event: ChainEvent) -> None:
    provider, reason = _provider(state, event), event.args["reason"]
    state.providers[provider.provider] = replace(
        provider,
        status=RegistryStatus(event.args["status"]),
        status_reason=reason if int(reason, 16) else None,
    )


def _node_key_changed(state: MarketState, event: ChainEvent) -> None:
    provider = _provider(state, event)
    keys = (*provider.node_keys, NodeKeyChange(event.args["node_key"], event.unix_s))
    state.providers[provider.provider] = replace(provider, node_keys=keys[-NODE_KEYS_KEPT:])


def _attested(state: MarketState, event: ChainEvent) -> None:
    args, provider = event.args, _provider(state, event)
    attestation = Attestation(args["auditor"], args["topic"], args["detail"], args["expires_at"])
    attestations = {**provider.attestations, (attestation.auditor, attestation.topic): attestation}
    newest = dict(list(attestations.items())[-ATTESTATIONS_MAX:])
    state.providers[provider.provider] = replace(provider, attestations=newest)


def _bond_changed(state: MarketState, event: ChainEvent) -> None:
    args = event.args
    state.bonds[args["provider"]] = BondRecord(args["free"], args["locked"], args["unbonding"])


# Validators


def _validator_changed(state: MarketState, event: ChainEvent) -> None:
    args = event.args
    old = state.validators.get(args["operator"]) or ValidatorRecord(operator=args["operator"], vote_key="")
    state.validators[old.operator] = replace(old, vote_key=args["vote_key"], url=args["url"])


def _stake_moved(state: MarketState, event: ChainEvent) -> None:
    args = event.args
    old = state.validators.get(args["operator"]) or ValidatorRecord(operator=args["operator"], vote_key="")
    state.validators[old.operator] = replace(
        old,
        stake_uusd=args["stake"],
        pending_uusd=args["pending"],
        pending_since=args["pending_since"],
        unbonding_uusd=args["unbonding"],
        ready_at=args["ready_at"],
    )


def _stake_changed(state: MarketState, event: ChainEvent) -> None:
    args, version = event.args, event.args["version"]
    state.stake_version = version
    state.totals[version] = args["total"]
    if len(state.totals) > STAKE_VERSIONS_KEPT:
        del state.totals[next(iter(state.totals))]
    history = state.histories.get(args["vote_key"], WeightHistory(args["operator"]))
    changes = (*history.changes, WeightChange(version, args["weight"]))
    oldest_kept = next(iter(state.totals))
    needless = sum(later.version <= oldest_kept for later in changes[1:])
    state.histories[args["vote_key"]] = WeightHistory(history.operator, changes[needless:], history.dropped + needless)


def _slashed(state: MarketState, event: ChainEvent) -> None:
    validator = state.validators.get(event.args["operator"])
    if validator is not None:
        slashed = validator.slashed_uusd + event.args["amount"]
        state.validators[validator.operator] = replace(validator, slashed_uusd=slashed)


def _snapshot_posted(state: MarketState, event: ChainEvent) -> None:
    args = event.args
    state.snapshots[args["epoch"]] = SnapshotRecord(
        args["epoch"], args["root"], args["count"], args["inputs_hash"], event.unix_s
    )
    if len(state.snapshots) > SNAPSHOTS_KEPT:
        del state.snapshots[next(iter(state.snapshots))]


_HANDLERS: dict[tuple[str, str], Callable[[MarketState, ChainEvent], None]] = {
    ("deployment_order", "PROVIDER_LOOKUP"): _provider_lookup,
    ("deployment_order", "CandidateSkipped"): _candidate_skipped,
    ("deployment_order", "OrderUnmatched"): _order_unmatched,
    ("deployment_order", "AttemptExpired"): _attempt_expired,
    ("deployment_order", "OrderCancelled"): _order_cancelled,
    ("deployment_order", "LeaseCreated"): _lease_created,
    ("deployment_order", "DeploymentConfirmed"): _of_lease(_confirmed),
    ("deployment_order", "LeasePaused"): _of_lease(_paused),
    ("deployment_order", "LeaseResumed"): _of_lease(_resumed),
    ("deployment_order", "ReclaimNoticed"): _of_lease(_noticed),
    ("deployment_order", "LeaseUnplaced"): _lease_unplaced,
    ("deployment_order", "LeaseHandedOver"): _lease_handed_over,
    ("deployment_order", "LeaseClosed"): _lease_closed,
    ("lease_moves", "UpdateProposed"): _of_lease(_update_proposed),
    ("lease_moves", "LeaseUpdated"): _lease_updated,
    ("task_manager", "MatchAccepted"): _match_accepted,
    ("task_manager", "NoMatch"): _no_match,
    ("task_manager", "SnapshotPosted"): _snapshot_posted,
    **STREAM_HANDLERS,
    ("provider_registry", "ProviderRegistered"): _provider_registered,
    ("provider_registry", "ClaimsChanged"): _claims_changed,
    ("provider_registry", "StatusChanged"): _status_changed,
    ("provider_registry", "NodeKeyChanged"): _node_key_changed,
    ("provider_registry", "Attested"): _attested,
    ("stake_registry", "BondChanged"): _bond_changed,
    ("stake_registry", "ValidatorChanged"): _validator_changed,
    ("stake_registry", "StakeMoved"): _stake_moved,
    ("stake_registry", "StakeChanged"): _stake_changed,
    ("stake_registry", "Slashed"): _slashed,
}

EVENT_NAMES: tuple[str, ...] = tuple(sorted(f"{contract}.{event}" for contract, event in _HANDLERS))
"""The events that change the state, written `contract.event`."""
