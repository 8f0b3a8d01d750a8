"""The contract calls that move a lease: what time makes due, what a node's key has signed, what validators certify.

Pure. Whether a call is wanted is judged by the newest events; the contracts judge again.
"""

from __future__ import annotations

from sparewatt.chain.market.decisions import DueAct, MarketAct
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import ContractCall, bytes_of
from sparewatt.market.chain_records import LeaseRecord, LeaseState, MarketState, OrderRecord
from sparewatt.market.stand_ins import position_of, turn_at
from sparewatt.protocol.contracts.lease_acts import MOVES_KINDS, NONCE_KINDS, details_hash_of
from sparewatt.protocol.contracts.reasons import CloseReason, HandOverReason
from sparewatt.protocol.link.lease_tasks import ActKind, LeaseAct
from sparewatt.store.lease_acts import StoredAct

ORDERS, MOVES, ESCROW, STAKES = "deployment_order", "lease_moves", "escrow", "stake_registry"
NO_SIGNATURE = b""
_RUNNING = frozenset({LeaseState.PENDING, LeaseState.ACTIVE, LeaseState.PAUSED})


# what time makes due


def due_call(contracts: Contracts, state: MarketState, due: DueAct) -> ContractCall | None:
    subject = due.subject
    match due.act:
        case MarketAct.ACTIVATE:
            return contracts[STAKES].encode_call("activate", subject)
        case MarketAct.REOPEN:
            return contracts[ORDERS].encode_call("reopen", bytes_of(subject), state.orders[subject].terms.values())
        case MarketAct.NO_START:
            return _hand_over(contracts, state.orders[subject], HandOverReason.NO_START)
        case _:
            contract, function, more = _PLAIN_CALLS[due.act]
            return contracts[contract].encode_call(function, bytes_of(subject), *more)


_PLAIN_CALLS: dict[MarketAct, tuple[str, str, tuple[int, ...]]] = {
    MarketAct.EXPIRE: (ORDERS, "expire_attempt", ()),
    MarketAct.SETTLE: (ESCROW, "settle", ()),
    MarketAct.RESUME: (ORDERS, "resume", ()),
    MarketAct.CLOSE_DURATION: (ORDERS, "close", (int(CloseReason.DURATION),)),
    MarketAct.CLOSE_EMPTY: (ORDERS, "close", (int(CloseReason.EMPTY),)),
}


# what a node's key has signed


def act_due_at(state: MarketState, stored: StoredAct) -> int | None:
    """The first second at which the contract takes it; None for an act that is done, replaced or of another term."""
    act = stored.act
    order, lease = state.orders.get(act.order_id), state.leases.get(act.order_id)
    if order is None or lease is None or not _acts_for(state, lease, order, stored):
        return None
    if act.kind is ActKind.ACCEPT:
        is_next = lease.state is LeaseState.VACANT and act.term == lease.term + 1
        position = position_of(state, order, stored.account)
        return turn_at(order, lease, position) if is_next and position > lease.position else None
    is_wanted = lease.term == act.term and lease.state in _RUNNING and _is_open(act, lease)
    if not is_wanted:
        return None
    # A provider that has given notice wants to go when it is over: before that, going would cost its bond.
    return lease.may_close_at if act.kind in (ActKind.CLOSE, ActKind.RESIGN) else 0


def _is_open(act: LeaseAct, lease: LeaseRecord) -> bool:
    """Whether the lease still waits for it."""
    proposed = lease.proposed
    open_kinds = {
        ActKind.CONFIRM: lease.state is LeaseState.PENDING,
        ActKind.RESIGN: True,
        ActKind.NOTICE: not lease.notice_at,
        ActKind.CLOSE: lease.may_close_at > 0,
        ActKind.ACCEPT_UPDATE: proposed is not None and proposed.seq == act.seq and lease.state is LeaseState.ACTIVE,
    }
    return open_kinds[act.kind]


def has_number(act: LeaseAct) -> bool:
    return act.kind in NONCE_KINDS


def contract_of(act: LeaseAct) -> str:
    return MOVES if act.kind in MOVES_KINDS else ORDERS


def act_call(contracts: Contracts, state: MarketState, stored: StoredAct) -> ContractCall | None:
    """Of an act that is due."""
    act, order = stored.act, state.orders[stored.act.order_id]
    if act.kind is ActKind.RESIGN:
        return _hand_over(contracts, order, HandOverReason.RESIGNED, signature=bytes.fromhex(act.signature))
    if act.kind is ActKind.ACCEPT:
        return _take_over(contracts, state, order, stored)
    shown = _signed_terms(act, state.leases[act.order_id])
    if shown is None:
        return None
    function, terms = shown
    signed = (act.deadline, bytes.fromhex(act.signature))
    return contracts[contract_of(act)].encode_call(function, stored.account, bytes_of(act.order_id), *terms, *signed)


def _signed_terms(act: LeaseAct, lease: LeaseRecord) -> tuple[str, tuple[object, ...]] | None:
    """The function of a meta-transaction, and its arguments between the lease and the deadline."""
    proposed = lease.proposed
    match act.kind:
        case ActKind.CONFIRM:
            return "confirm_start_with_signature", (details_hash_of(act.details),)
        case ActKind.NOTICE:
            return "give_notice_with_signature", ()
        case ActKind.CLOSE:
            return "close_with_signature", (int(CloseReason.PROVIDER_RECLAIM),)
        case ActKind.ACCEPT_UPDATE if proposed is not None:
            terms = (bytes_of(proposed.spec_hash), proposed.rate_uusd, proposed.duration_s, proposed.seq)
            return "accept_update_with_signature", terms
        case _:
            return None


def _take_over(contracts: Contracts, state: MarketState, order: OrderRecord, stored: StoredAct) -> ContractCall | None:
    if order.certificate is None:
        return None
    position, record = position_of(state, order, stored.account), order.certificate.record.values()
    signature = bytes.fromhex(stored.act.signature)
    return contracts[MOVES].encode_call("take_over", bytes_of(order.order_id), record, position, signature)


def _hand_over(
    contracts: Contracts,
    order: OrderRecord,
    reason: HandOverReason,
    *,
    signature: bytes = NO_SIGNATURE,
) -> ContractCall | None:
    if order.certificate is None:
        return None
    record = order.certificate.record.values()
    return contracts[MOVES].encode_call("hand_over", bytes_of(order.order_id), record, int(reason), 0, [], signature)


def _acts_for(state: MarketState, lease: LeaseRecord, order: OrderRecord, stored: StoredAct) -> bool:
    """Whether the key is of the provider that the act is about."""
    if stored.act.kind is ActKind.ACCEPT:
        return position_of(state, order, stored.account) > 0
    provider = state.providers.get(lease.provider or "")
    return provider is not None and provider.node_key == stored.account
