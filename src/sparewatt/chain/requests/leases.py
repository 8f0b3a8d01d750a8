"""Requests of orders and leases: ORDER, REOPEN, CANCEL, PAUSE, RESUME, CLOSE, TOP_UP, UPDATE.

Each is a signed call of the renter, whose key the network holds. An order and a top-up pay first: with what the escrow
owes the renter, with tokens at its address, then with credits that are held for the request and become tokens there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.funding import held_payment
from sparewatt.chain.requests.handler import CallBatch, RequestHandler
from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import bytes_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.meta_transactions import (
    CancelOrder,
    Close,
    CreateOrder,
    Pause,
    ProposeUpdate,
    Reopen,
    Resume,
    TopUp,
)
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import TypedMessage, struct_hash
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.request_params import ChainRequestKind

ORDERS, MOVES, ESCROW = "deployment_order", "lease_moves", "escrow"
CLOSED_BY_RENTER = 1
"""The reason of a close that the renter asks for."""
MessageMaker = Callable[[ChainRequestRow, int, int], TypedMessage]
"""Makes the signed message out of the request, the renter's nonce and the deadline."""


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A contract's `…_with_signature`: its arguments are the renter, those of the request, deadline and signature."""

    contract: str
    function: str
    message: MessageMaker
    args: Callable[[ChainRequestRow], tuple[object, ...]]
    is_paid: bool = False
    """Whether the escrow takes the request's amount."""


@dataclass(frozen=True, slots=True)
class LeaseHandler(RequestHandler):
    context: ChainRequestContext
    name: str
    signed_call: SignedCall

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        context, signed_call = self.context, self.signed_call
        key, contract = await context.account_key(row), context.contracts[signed_call.contract]
        payment = await self._payment(row, key) if signed_call.is_paid else CallBatch()
        if payment.wait_s > 0:
            return payment
        nonce, deadline = await context.next_nonce(contract, row.address), await context.deadline()
        signature = context.sign(key, contract, signed_call.message(row, nonce, deadline))
        call = contract.encode_call(signed_call.function, row.address, *signed_call.args(row), deadline, signature)
        return CallBatch((*payment.calls, (self.name, call)))

    async def _payment(self, row: ChainRequestRow, key: SigningKey) -> CallBatch:
        """The escrow takes what it owes the payer first, so a refund pays for the next order."""
        escrow: Contract = self.context.contracts[ESCROW]
        missing = row.micro - int(await self.context.view(escrow, "owed", row.address))
        if missing <= 0:
            return CallBatch()
        return await held_payment(self.context, row, key, spender=escrow, micro=missing)


@dataclass(frozen=True, slots=True)
class OrderHandler(LeaseHandler):
    """Its result is the order's id, which the contract makes: first seen in PROVIDER_LOOKUP."""

    result_events: ClassVar[Sequence[str]] = (f"{ORDERS}.PROVIDER_LOOKUP",)

    def read_result(self, row: ChainRequestRow, events: Sequence[ChainEvent]) -> Mapping[str, Any]:
        ids = [event.args["order_id"] for event in events if event.args["renter"] == row.address]
        return {"order_id": ids[0]} if ids else {}


def _create(row: ChainRequestRow, nonce: int, deadline: int) -> TypedMessage:
    asked = row.params
    content = (struct_hash(asked.terms), bytes_of(asked.spec_hash), row.micro, asked.expires_at, asked.max_attempts)
    return CreateOrder(row.address, *content, nonce, deadline)


def _create_args(row: ChainRequestRow) -> tuple[object, ...]:
    asked = row.params
    return (asked.terms.values(), bytes_of(asked.spec_hash), row.micro, asked.expires_at, asked.max_attempts)


def _order_id(row: ChainRequestRow) -> bytes:
    return bytes_of(row.params.order_id)


def _update(row: ChainRequestRow) -> tuple[bytes, bytes, int, int, int]:
    asked = row.params
    return (_order_id(row), bytes_of(asked.spec_hash), asked.rate_uusd, asked.duration_s, asked.seq)


SIGNED_CALLS: dict[ChainRequestKind, SignedCall] = {
    ChainRequestKind.ORDER: SignedCall(ORDERS, "create_order_with_signature", _create, _create_args, is_paid=True),
    ChainRequestKind.REOPEN: SignedCall(
        ORDERS,
        "reopen_with_signature",
        lambda row, nonce, deadline: Reopen(row.address, _order_id(row), nonce, deadline),
        lambda row: (_order_id(row), row.params.terms.values()),
    ),
    ChainRequestKind.CANCEL: SignedCall(
        ORDERS,
        "cancel_order_with_signature",
        lambda row, nonce, deadline: CancelOrder(row.address, _order_id(row), nonce, deadline),
        lambda row: (_order_id(row),),
    ),
    ChainRequestKind.PAUSE: SignedCall(
        ORDERS,
        "pause_with_signature",
        lambda row, nonce, deadline: Pause(row.address, _order_id(row), nonce, deadline),
        lambda row: (_order_id(row),),
    ),
    ChainRequestKind.RESUME: SignedCall(
        ORDERS,
        "resume_with_signature",
        lambda row, nonce, deadline: Resume(row.address, _order_id(row), nonce, deadline),
        lambda row: (_order_id(row),),
    ),
    ChainRequestKind.CLOSE: SignedCall(
        ORDERS,
        "close_with_signature",
        lambda row, nonce, deadline: Close(row.address, _order_id(row), CLOSED_BY_RENTER, nonce, deadline),
        lambda row: (_order_id(row), CLOSED_BY_RENTER),
    ),
    ChainRequestKind.TOP_UP: SignedCall(
        ESCROW,
        "top_up_with_signature",
        lambda row, nonce, deadline: TopUp(row.address, _order_id(row), row.micro, nonce, deadline),
        lambda row: (_order_id(row), row.micro),
        is_paid=True,
    ),
    ChainRequestKind.UPDATE: SignedCall(
        MOVES,
        "propose_update_with_signature",
        lambda row, nonce, deadline: ProposeUpdate(row.address, *_update(row), nonce, deadline),
        _update,
    ),
}


def lease_handlers(context: ChainRequestContext) -> dict[ChainRequestKind, RequestHandler]:
    return {
        kind: (OrderHandler if kind is ChainRequestKind.ORDER else LeaseHandler)(context, kind.value, signed_call)
        for kind, signed_call in SIGNED_CALLS.items()
    }
