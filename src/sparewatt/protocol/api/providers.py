"""Providers of leases: replies and bodies of `/v1/providers`.

A provider is one node, registered on the chain under an address of its own, with a bond. Amounts are in dollars
(`…_usd`, an exact decimal string) and in nano-dollars (`…_nano`, an integer of 1e-9 $).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sparewatt.protocol.api.credits import AmountBody

ProviderStatusName = Literal["unregistered", "registered", "active", "maintenance", "suspended", "left"]
ChosenStatus = Literal["active", "maintenance", "left"]
"""What an owner may set."""
BondSource = Literal["credits", "earnings"]
AddressText = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{40}\Z")]


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """Its address on the chain: it owns the bond, and is paid."""
    node: str
    """The node that it is. The node's key signs its bids."""
    name: str
    """The node's."""
    held: bool
    """Whether the network keeps its key for your account; else your wallet registered it."""
    status: ProviderStatusName
    """Only an active one gets leases."""
    offers_leases: bool
    """Whether the node is connected and its owner offers leases."""
    bond_usd: str
    """The sum of the next three."""
    bond_nano: int
    free_usd: str
    """Answers for bids, and can be taken out."""
    free_nano: int
    locked_usd: str
    """Answers for leases that it has."""
    locked_nano: int
    unbonding_usd: str
    """On its way out; still answers for bids and leases."""
    unbonding_nano: int
    unbonded_at: float | None = None
    """When it is out, in Unix seconds: unbonding more before that puts it off. None if nothing is, or a wallet did."""


class ProviderList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Provider]


class ProviderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the chain."""

    id: str
    kind: str
    state: str
    tx: str | None
    """The transaction that completed it."""


class ProviderChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an act."""

    changed: bool
    """False if there was nothing to do, or the id was used before."""
    request: ProviderRequest | None
    provider: Provider
    """Afterwards."""


class RegisterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    node: str
    """Its name or address."""


class WalletBody(RegisterBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    wallet: AddressText
    """The address that registers the node, and will own its bond and pay."""


class WalletTransactionReply(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction for the owner's own wallet to send. It registers the node as this wallet's provider."""

    chain_id: int
    sender: str
    """The wallet: the node has signed for this address only."""
    to: str
    data: str
    """Hexadecimal, with the node key's signature in it."""
    value: str = "0x0"


class BondBody(AmountBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    source: BondSource = "credits"
    """What pays for it. `earnings`: what your account has earned and claimed, or can claim now."""


class UnbondBody(AmountBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much bond to take out."""


class StatusBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    status: ChosenStatus
    id: str | None = None
    """The client's idempotency key: a request that repeats the id of an earlier one changes nothing."""
