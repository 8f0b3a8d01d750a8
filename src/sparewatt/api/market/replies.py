"""The replies of `/v1/market` out of the market's records. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar, get_args

from sparewatt.core.money import format_usd
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.market.accrual import PaymentStream
from sparewatt.market.chain_records import (
    AcceptedCertificate,
    BondRecord,
    LeaseRecord,
    LeaseState,
    OrderRecord,
    OrderState,
    ProviderRecord,
    RegistryStatus,
    SnapshotRecord,
    ValidatorRecord,
    VotingRecord,
)
from sparewatt.market.chain_view import ChainView
from sparewatt.market.reopening import next_attempt_at
from sparewatt.market.voting_record import RecentVotes
from sparewatt.policy.market_ids import GPU_MODEL_ID
from sparewatt.protocol.api.market import (
    LeaseStateName,
    MarketCertificate,
    MarketLease,
    MarketOrder,
    MarketProvider,
    MarketSnapshot,
    MarketValidator,
    OrderStateName,
    RegistryStatusName,
    ValidatorVotes,
)
from sparewatt.protocol.contracts.match import NO_PROVIDER
from sparewatt.protocol.contracts.reasons import CloseReason, HandOverReason, OrderOutcome
from sparewatt.protocol.typed_message import struct_hash

ORDER_STATES: dict[OrderState, OrderStateName] = dict(zip(OrderState, get_args(OrderStateName), strict=True))
LEASE_STATES: dict[LeaseState, LeaseStateName] = dict(zip(LeaseState, get_args(LeaseStateName), strict=True))
REGISTRY_STATES: dict[RegistryStatus, RegistryStatusName] = dict(
    zip(RegistryStatus, get_args(RegistryStatusName), strict=True)
)
_Reason = TypeVar("_Reason", bound=IntEnum)


def usd(uusd: int) -> str:
    return format_usd(uusd * NANO_PER_MICRO)


def order_reply(view: ChainView, order: OrderRecord) -> MarketOrder:
    latest, final = view.latest, view.final
    lease = latest.leases.get(order.order_id)
    stream = latest.streams.get(order.order_id, PaymentStream(0))
    chosen = order.certificate.record.chosen if order.certificate is not None else ()
    return MarketOrder(
        id=order.order_id,
        renter=order.renter,
        state=ORDER_STATES[order.state],
        reason=_reason_name(OrderOutcome, order.outcome),
        attempt=order.attempt,
        max_attempts=order.max_attempts,
        created_at=order.created_at,
        opened_at=order.opened_at[order.attempt],
        next_attempt_at=next_attempt_at(latest, order),
        expires_at=order.expires_at,
        gpu_units=order.terms.gpu_units,
        gpu_models=order.terms.gpu_models,
        gpu_names=[name for name, number in GPU_MODEL_ID.items() if order.terms.gpu_models >> number & 1],
        min_vram_gb=order.terms.min_vram_gb,
        max_hourly_usd=usd(order.terms.max_price_uusd),
        duration_s=order.terms.duration_s,
        commit_ms=order.terms.commit_ms,
        reveal_ms=order.terms.reveal_ms,
        only=list(order.terms.only),
        deposit_usd=usd(stream.deposit_uusd),
        charged_usd=usd(stream.charged_uusd),
        refunded_usd=None if stream.refunded_uusd is None else usd(stream.refunded_uusd),
        spec_hash=order.spec_hash,
        policy_hash=f"0x{struct_hash(order.terms).hex()}",
        stake_version=order.stake_version,
        snapshot_epoch=order.snapshot_epoch,
        candidates=[award.provider for award in chosen if award.provider != NO_PROVIDER],
        certificate=certificate_reply(order.certificate),
        failed=sorted(order.failed),
        lease=None if lease is None else lease_reply(view, lease),
        final=final.orders.get(order.order_id) == order,
    )


def certificate_reply(certificate: AcceptedCertificate | None) -> MarketCertificate | None:
    if certificate is None:
        return None
    return MarketCertificate(
        task_digest=f"0x{certificate.record.task_hash.hex()}",
        round=certificate.record.round,
        bid_count=certificate.bid_count,
        signers=list(certificate.signers),
        accepted_at=certificate.accepted_at,
    )


def lease_reply(view: ChainView, lease: LeaseRecord) -> MarketLease:
    stream = view.latest.streams.get(lease.lease_id, PaymentStream(0))
    is_running = lease.state is LeaseState.ACTIVE
    return MarketLease(
        id=lease.lease_id,
        renter=lease.renter,
        state=LEASE_STATES[lease.state],
        provider=lease.provider,
        term=lease.term,
        position=lease.position,
        hourly_usd=usd(lease.rate_uusd),
        deposit_usd=usd(stream.deposit_uusd),
        locked_usd=usd(lease.locked_uusd),
        created_at=lease.created_at,
        confirm_by=lease.confirm_by,
        running_since=lease.running_since if is_running else None,
        ends_at=stream.end_at if is_running else None,
        paused_at=lease.paused_at if lease.state is LeaseState.PAUSED else None,
        may_close_at=lease.may_close_at or None,
        hand_over_reason=_reason_name(HandOverReason, lease.hand_over_reason),
        closed_at=lease.closed_at,
        close_reason=_reason_name(CloseReason, lease.close_reason),
        final=view.final.leases.get(lease.lease_id) == lease,
    )


def provider_reply(view: ChainView, provider: ProviderRecord) -> MarketProvider:
    claims, bond = provider.claims, view.latest.bonds.get(provider.provider, BondRecord())
    return MarketProvider(
        id=provider.provider,
        node_key=provider.node_key,
        status=REGISTRY_STATES[provider.status],
        registered_at=provider.registered_at,
        country=claims.country if claims else 0,
        zone=claims.zone if claims else 0,
        tier=claims.tier if claims else 0,
        gpu_model=claims.gpu_model if claims else 0,
        vram_gb=claims.vram_gb if claims else 0,
        gpu_units=claims.gpu_units if claims else 0,
        price_hint_usd=usd(claims.price_hint_uusd if claims else 0),
        attested=len(provider.attestations),
        free_usd=usd(bond.free_uusd),
        locked_usd=usd(bond.locked_uusd),
        unbonding_usd=usd(bond.unbonding_uusd),
        final=view.final.providers.get(provider.provider) == provider,
    )


def validator_reply(
    validator: ValidatorRecord, *, weight: int, voting: VotingRecord, recent: RecentVotes
) -> MarketValidator:
    return MarketValidator(
        id=validator.operator,
        vote_key=validator.vote_key,
        url=validator.url,
        weight_usd=usd(weight),
        stake_usd=usd(validator.stake_uusd),
        pending_usd=usd(validator.pending_uusd),
        unbonding_usd=usd(validator.unbonding_uusd),
        slashed_usd=usd(validator.slashed_uusd),
        jailed=validator.is_jailed,
        certificates=voting.certificates,
        votes=voting.votes,
        last_vote_at=voting.last_vote_at,
        recent=ValidatorVotes(agreed=recent.agreed, differed=recent.differed, missed=recent.missed),
    )


def snapshot_reply(snapshot: SnapshotRecord | None) -> MarketSnapshot | None:
    if snapshot is None:
        return None
    return MarketSnapshot(epoch=snapshot.epoch, root=snapshot.root, count=snapshot.count, posted_at=snapshot.posted_at)


def _reason_name(reasons: type[_Reason], code: int | None) -> str | None:
    """The protocol's name of a code; a code that this release does not know stays a number."""
    if code is None:
        return None
    known = {int(reason): reason.name for reason in reasons}
    return known.get(code, str(code))
