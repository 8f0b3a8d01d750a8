"""What a chain request of each kind needs beside its account, address and amount; stored as JSON.

Hashes and ids of orders are 0x-hex. A lease has the id of its order.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sparewatt.core.ids import NodeId
from sparewatt.protocol.contracts.match import OrderTerms

Hash32 = Annotated[str, Meta(pattern=r"^0x[0-9a-f]{64}\Z")]
ChainAddress = Annotated[str, Meta(pattern=r"^0x[0-9a-f]{40}\Z")]
PARAMS_BYTES_MAX = 8_192
"""A policy with all its lists has less than 3 kB."""


ALL_CONTRACTS = "all"
"""Every contract that owes the address something."""


class ChainRequestKind(Enum):
    DEPOSIT = "deposit"
    CLAIM = "claim"
    ORDER = "order"
    REOPEN = "reopen"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    CLOSE = "close"
    TOP_UP = "top_up"
    UPDATE = "update"
    REGISTER = "register"
    BOND = "bond"
    UNBOND = "unbond"
    STATUS = "status"
    WITHDRAW = "withdraw"
    EXIT = "exit"


class RequestParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all. As it is: a request that needs nothing more."""


class ClaimParams(RequestParams, frozen=True):
    epoch: int
    """The payout batch that proves the claim."""
    pool: int = 0
    """Of the settlement contract: 0 for what was earned, 1 for era rewards."""
    to_bond: bool = False
    """Into the bond of the provider at the request's address, for which the network signs."""


class OrderParams(RequestParams, frozen=True):
    """The amount of the request is the deposit."""

    terms: OrderTerms
    spec_hash: Hash32
    expires_at: int
    max_attempts: int


class ReopenParams(RequestParams, frozen=True):
    order_id: Hash32
    terms: OrderTerms


class LeaseParams(RequestParams, frozen=True):
    """Of CANCEL, PAUSE, RESUME, CLOSE and TOP_UP."""

    order_id: Hash32
    asked: str = ""
    """Of a top-up that is part of something else: what was asked for."""


class UpdateParams(RequestParams, frozen=True):
    """The whole of the proposed terms: what shall stay is given as it is."""

    order_id: Hash32
    spec_hash: Hash32
    rate_uusd: int
    duration_s: int
    seq: int
    """The number of the update, above the last."""
    asked: str = ""
    """As the renter asked for it, since the duration depends on when that was."""


class RegisterParams(RequestParams, frozen=True):
    """Of a provider, at the request's address: its claims and the node's key, with that key's consent."""

    node_id: NodeId
    country: int
    zone: int
    tier: int
    gpu_model: int
    vram_gb: int
    gpu_units: int
    price_hint_uusd: int
    metadata_hash: Hash32
    node_key: ChainAddress
    node_key_signature: str


class ProviderParams(RequestParams, frozen=True):
    """Of BOND and UNBOND."""

    provider: ChainAddress


class StatusParams(RequestParams, frozen=True):
    provider: ChainAddress
    status: int


class WithdrawParams(RequestParams, frozen=True):
    contract: str
    """Of the contract that owes: `escrow`, `stake_registry`, …; or ALL_CONTRACTS."""
    receiver: ChainAddress | None = None
    """None: into the account's credits."""
    only_owed: bool = False
    """Bring back what this contract owes the address itself, and leave other tokens there alone."""


class ExitParams(RequestParams, frozen=True):
    receiver: ChainAddress | None = None
    """None: the tokens stay at the request's address."""


PARAMS_OF: dict[ChainRequestKind, type[RequestParams]] = {
    ChainRequestKind.DEPOSIT: RequestParams,
    ChainRequestKind.CLAIM: ClaimParams,
    ChainRequestKind.ORDER: OrderParams,
    ChainRequestKind.REOPEN: ReopenParams,
    ChainRequestKind.CANCEL: LeaseParams,
    ChainRequestKind.PAUSE: LeaseParams,
    ChainRequestKind.RESUME: LeaseParams,
    ChainRequestKind.CLOSE: LeaseParams,
    ChainRequestKind.TOP_UP: LeaseParams,
    ChainRequestKind.UPDATE: UpdateParams,
    ChainRequestKind.REGISTER: RegisterParams,
    ChainRequestKind.BOND: ProviderParams,
    ChainRequestKind.UNBOND: ProviderParams,
    ChainRequestKind.STATUS: StatusParams,
    ChainRequestKind.WITHDRAW: WithdrawParams,
    ChainRequestKind.EXIT: ExitParams,
}


def encode_params(kind: ChainRequestKind, params: RequestParams) -> str:
    """Raises ValueError for the params of another kind, or for more than fits: a mistake of ours, not of a user."""
    if type(params) is not PARAMS_OF[kind]:
        raise ValueError(f"a request {kind.value} has {PARAMS_OF[kind].__name__}, not {type(params).__name__}")
    text = msgspec.json.encode(params).decode()
    if len(text) > PARAMS_BYTES_MAX:
        raise ValueError(f"the params of a request have at most {PARAMS_BYTES_MAX} bytes")
    return text


def decode_params(kind: ChainRequestKind, text: str) -> Any:
    """None for what another release wrote in another form."""
    try:
        return msgspec.json.decode(text, type=PARAMS_OF[kind])
    except msgspec.ValidationError:
        return None
