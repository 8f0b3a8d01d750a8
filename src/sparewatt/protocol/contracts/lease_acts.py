"""The contracts' messages behind a node's signed acts: built by the node to sign, by gateways to check, by the chain's
process to send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from sparewatt.protocol.contracts.meta_transactions import (
    Accept,
    AcceptUpdate,
    Close,
    ConfirmStart,
    GiveNotice,
    Resign,
)
from sparewatt.protocol.contracts.reasons import CloseReason
from sparewatt.protocol.link.lease_tasks import ActKind, LeaseAct, ProposedUpdate
from sparewatt.protocol.signing import BadSignature, SigningKey, keccak256, recover_address
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest

MOVES_KINDS = frozenset({ActKind.ACCEPT, ActKind.RESIGN, ActKind.ACCEPT_UPDATE})
"""Taken by `lease_moves`; the others by `deployment_order`."""
NONCE_KINDS = frozenset({ActKind.CONFIRM, ActKind.NOTICE, ActKind.CLOSE, ActKind.ACCEPT_UPDATE})
"""Meta-transactions: each has the next number of its account, and a deadline."""


@dataclass(frozen=True, slots=True)
class ActContracts:
    """Where acts are valid."""

    chain_id: int
    deployment_order: str
    lease_moves: str

    def of(self, kind: ActKind) -> str:
        return self.lease_moves if kind in MOVES_KINDS else self.deployment_order


def details_hash_of(details: str) -> bytes:
    return keccak256(details.encode())


def act_message(act: LeaseAct, *, account: str, update: ProposedUpdate | None = None) -> TypedMessage:
    """What the node key `account` signs. `update`: of ACCEPT_UPDATE, what is accepted.

    Raises ValueError for an update that is not there, or is another than the act's.
    """
    lease_id = bytes.fromhex(act.order_id[2:])
    match act.kind:
        case ActKind.CONFIRM:
            return ConfirmStart(account, lease_id, details_hash_of(act.details), act.nonce, act.deadline)
        case ActKind.NOTICE:
            return GiveNotice(account, lease_id, act.nonce, act.deadline)
        case ActKind.CLOSE:
            return Close(account, lease_id, int(CloseReason.PROVIDER_RECLAIM), act.nonce, act.deadline)
        case ActKind.ACCEPT:
            return Accept(lease_id, act.term)
        case ActKind.RESIGN:
            return Resign(lease_id, act.term)
        case ActKind.ACCEPT_UPDATE:
            if update is None or update.seq != act.seq:
                raise ValueError("there is no such update to accept")
            terms = (bytes.fromhex(update.spec_hash[2:]), update.rate_uusd, update.duration_s, update.seq)
            return AcceptUpdate(account, lease_id, *terms, act.nonce, act.deadline)
        case _:
            assert_never(act.kind)


def sign_act(
    act: LeaseAct, *, key: SigningKey, contracts: ActContracts, update: ProposedUpdate | None = None
) -> LeaseAct:
    """The same act with its signature. Raises ValueError as `act_message`."""
    message = act_message(act, account=key.address, update=update)
    digest = message_digest(contract_domain(chain_id=contracts.chain_id, contract=contracts.of(act.kind)), message)
    return LeaseAct(
        kind=act.kind,
        order_id=act.order_id,
        term=act.term,
        signature=key.sign(digest).hex(),
        nonce=act.nonce,
        deadline=act.deadline,
        details=act.details,
        seq=act.seq,
    )


def is_signed_by(account: str, act: LeaseAct, *, contracts: ActContracts, update: ProposedUpdate | None = None) -> bool:
    try:
        message = act_message(act, account=account, update=update)
        domain = contract_domain(chain_id=contracts.chain_id, contract=contracts.of(act.kind))
        return recover_address(message_digest(domain, message), bytes.fromhex(act.signature)) == account.lower()
    except (BadSignature, ValueError):
        return False
