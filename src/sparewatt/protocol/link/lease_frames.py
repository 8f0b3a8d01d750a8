"""What a gateway tells a node that offers leases: the market's facts, orders to bid on, and how attempts ended.

Sent only to nodes whose specs carry a `LeaseOffer`: another does not know the frames. Everything here is the gateway's
word. The node checks a lookup against the order's id, and against a chain of its owner's choice if there is one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sparewatt.protocol.link.node_report import Address

VALIDATORS_MAX = 64
"""A set has 32 places; replaced vote keys may still count for an attempt that is open."""
LEASES_HELD_MAX = 64
CONTENT_CHARS_MAX = 64 * 1024
URL_CHARS_MAX = 300
_INT64_MAX = (1 << 63) - 1

Hash = Annotated[str, Meta(pattern=r"^0x[0-9a-f]{64}\Z")]
ValidatorUrl = Annotated[str, Meta(max_length=URL_CHARS_MAX, pattern=r"^https?://[\x21-\x7e]+\Z")]
Height = Annotated[int, Meta(ge=0, le=_INT64_MAX)]
_Number = Annotated[int, Meta(ge=0, le=_INT64_MAX)]
_Uint32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Weights = Annotated[dict[Address, _Number], Meta(max_length=VALIDATORS_MAX)]


class ValidatorPeer(msgspec.Struct, frozen=True):
    vote_key: Address
    url: ValidatorUrl
    weight: _Number


class HeldLease(msgspec.Struct, frozen=True):
    order_id: Hash
    term: _Uint32


class MarketFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Sent with the welcome and when something changes; the block number alone at most once a second."""

    chain_id: Annotated[int, Meta(ge=1, le=_INT64_MAX)]
    task_manager: Address
    deployment_order: Address
    stake_registry: Address
    provider: Address | None
    """The provider that this node's key serves; None if it is registered for none."""
    stake_version: _Uint32
    validators: Annotated[tuple[ValidatorPeer, ...], Meta(max_length=VALIDATORS_MAX)]
    beat_ms: Annotated[int, Meta(ge=100, le=3_600_000)]
    attempt_s: Annotated[int, Meta(ge=1, le=86_400)]
    """An attempt that has no certificate so long after its opening is over."""
    block_number: Height
    held: Annotated[tuple[HeldLease, ...], Meta(max_length=LEASES_HELD_MAX)] | None = None
    """Leases that the chain has with this provider at this block; None: the gateway does not say."""


class LeaseLookup(msgspec.Struct, frozen=True, kw_only=True):
    """PROVIDER_LOOKUP with what is ordered. The order's id covers renter, nonce, policy and specification."""

    order_id: Hash
    attempt: _Uint32
    renter: Address
    renter_nonce: _Number
    policy: Annotated[dict[str, Any], Meta(max_length=32)]
    """An `OrderTerms`, as `write_message` writes it."""
    specification: Annotated[dict[str, Any], Meta(max_length=32)]
    content: Annotated[str, Meta(max_length=CONTENT_CHARS_MAX)]
    """The document whose hash the specification has: image, command, ports."""
    stake_version: _Uint32
    weights: Weights
    """By vote key, at the stake version of the attempt."""
    opened_at: _Number
    """Chain time, in seconds."""
    block_number: Height
    """The block with the event."""
    renter_orders: _Uint32 = 0
    """The renter's orders so far, this one included, as the gateway knows them from the chain; older ones say 0."""
    renter_broken: _Uint32 = 0
    """Of these, withdrawn in an open auction, or closed by the renter before they had started."""


class LeaseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended for this node, or that a lease which it holds is over."""

    order_id: Hash
    attempt: _Uint32
    result: Literal["won", "standby", "lost", "none", "ended"]
    """`none`: the attempt ended without a lease. `ended`: the lease is closed, or has moved on."""
    provider: Address | None = None
    """Where the lease is placed."""
    term: _Uint32 = 0
    pay_uusd: _Number = 0
    """Per hour, of the placed provider."""
    block_number: Height = 0
