"""Meta-transactions: an account without gas signs a message, and a relayer calls the contract's `…_with_signature`.

Each ends in the account's nonce at that contract and a deadline in chain time, against replay. The exceptions are bound
to something that happens once: a key that serves an account, or one term of a lease.
"""

from __future__ import annotations

from sparewatt.protocol.typed_message import Address, Bytes32, TypedMessage, Uint8, Uint16, Uint32, Uint64, Uint256

# any ERC-20 with permits, under its own domain


class Permit(TypedMessage):
    owner: Address
    spender: Address
    value: Uint256
    nonce: Uint256
    deadline: Uint256


# settlement


class Deposit(TypedMessage):
    payer: Address
    account: Address
    amount: Uint256
    nonce: Uint256
    deadline: Uint256


class ClaimToBond(TypedMessage):
    account: Address
    pool: Uint256
    earned: Uint256
    nonce: Uint256
    deadline: Uint256


class RequestExit(TypedMessage):
    account: Address
    amount: Uint256
    nonce: Uint256
    deadline: Uint256


# escrow, stake_registry, dispute_book


class Withdraw(TypedMessage):
    account: Address
    receiver: Address
    nonce: Uint256
    deadline: Uint256


class TopUp(TypedMessage):
    payer: Address
    lease_id: Bytes32
    amount: Uint256
    nonce: Uint256
    deadline: Uint256


class DepositBond(TypedMessage):
    payer: Address
    provider: Address
    amount: Uint256
    nonce: Uint256
    deadline: Uint256


class UnbondBond(TypedMessage):
    provider: Address
    amount: Uint256
    nonce: Uint256
    deadline: Uint256


class VoteKey(TypedMessage):
    operator: Address
    vote_key: Address


# provider_registry


class Register(TypedMessage):
    provider: Address
    country: Uint8
    zone: Uint8
    tier: Uint8
    gpu_model: Uint8
    vram_gb: Uint16
    gpu_units: Uint16
    price_hint_uusd: Uint64
    metadata_hash: Bytes32
    node_key: Address
    nonce: Uint256
    deadline: Uint256


class SetClaims(TypedMessage):
    provider: Address
    country: Uint8
    zone: Uint8
    tier: Uint8
    gpu_model: Uint8
    vram_gb: Uint16
    gpu_units: Uint16
    price_hint_uusd: Uint64
    metadata_hash: Bytes32
    nonce: Uint256
    deadline: Uint256


class SetStatus(TypedMessage):
    provider: Address
    status: Uint8
    nonce: Uint256
    deadline: Uint256


class SetNodeKey(TypedMessage):
    provider: Address
    node_key: Address
    nonce: Uint256
    deadline: Uint256


class NodeKey(TypedMessage):
    provider: Address
    node_key: Address


# deployment_order


class CreateOrder(TypedMessage):
    renter: Address
    policy_hash: Bytes32
    spec_hash: Bytes32
    deposit: Uint256
    expires_at: Uint256
    max_attempts: Uint256
    nonce: Uint256
    deadline: Uint256


class CancelOrder(TypedMessage):
    renter: Address
    order_id: Bytes32
    nonce: Uint256
    deadline: Uint256


class Reopen(TypedMessage):
    renter: Address
    order_id: Bytes32
    nonce: Uint256
    deadline: Uint256


class ConfirmStart(TypedMessage):
    account: Address
    lease_id: Bytes32
    details_hash: Bytes32
    nonce: Uint256
    deadline: Uint256


class Pause(TypedMessage):
    account: Address
    lease_id: Bytes32
    nonce: Uint256
    deadline: Uint256


class Resume(TypedMessage):
    account: Address
    lease_id: Bytes32
    nonce: Uint256
    deadline: Uint256


class GiveNotice(TypedMessage):
    account: Address
    lease_id: Bytes32
    nonce: Uint256
    deadline: Uint256


class Close(TypedMessage):
    account: Address
    lease_id: Bytes32
    reason: Uint256
    nonce: Uint256
    deadline: Uint256


# lease_moves


class ProposeUpdate(TypedMessage):
    account: Address
    lease_id: Bytes32
    spec_hash: Bytes32
    rate_uusd: Uint256
    duration_s: Uint256
    seq: Uint256
    nonce: Uint256
    deadline: Uint256


class AcceptUpdate(TypedMessage):
    account: Address
    lease_id: Bytes32
    spec_hash: Bytes32
    rate_uusd: Uint256
    duration_s: Uint256
    seq: Uint256
    nonce: Uint256
    deadline: Uint256


class Resign(TypedMessage):
    lease_id: Bytes32
    term: Uint32


class Accept(TypedMessage):
    """A stand-in takes a vacant lease: `term` is the next one."""

    lease_id: Bytes32
    term: Uint32
