"""Checks a lookup against itself: the order's id covers renter, policy and specification, and that the content.

So a gateway can hold a lookup back, but not change what is ordered. What the id does not cover is the attempt, the
stake and the time; a chain of the owner's choice tells (`chain_check`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.node.leases.offer_rules import OrderedLease
from sparewatt.protocol.contracts.match import OrderTerms, Specification, order_id_of
from sparewatt.protocol.contracts.message_json import read_message
from sparewatt.protocol.link.lease_frames import LeaseLookup, MarketFacts
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash

CONTENT_BYTES_MAX = 64 * 1024
IMAGE_CHARS_MAX = 500


class FalseLookup(Exception):
    """The lookup is not of the order that it names, or makes no sense. Its text says in what."""


@dataclass(frozen=True, slots=True)
class CheckedLookup:
    order_id: bytes
    attempt: int
    renter: str
    order: OrderedLease | None
    """None: the content is what the renter signed, but no document that a node understands."""
    terms: OrderTerms
    specification: Specification
    policy_hash: bytes
    spec_hash: bytes
    stake_version: int
    weights: Mapping[str, int]


def check_lookup(lookup: LeaseLookup, facts: MarketFacts) -> CheckedLookup:
    """Raises FalseLookup."""
    try:
        terms = read_message(OrderTerms, lookup.policy)
        specification = read_message(Specification, lookup.specification)
    except InvalidField as error:
        raise FalseLookup(f"out of range: {error.message[:200]}") from None
    policy_hash, spec_hash = struct_hash(terms), struct_hash(specification)
    order_id = order_id_of(
        chain_id=facts.chain_id,
        orders=facts.deployment_order,
        renter=lookup.renter,
        renter_nonce=lookup.renter_nonce,
        policy_hash=policy_hash,
        spec_hash=spec_hash,
    )
    if "0x" + order_id.hex() != lookup.order_id:
        raise FalseLookup("renter, policy or specification are not those of the order's id")
    content = lookup.content.encode("utf-8", errors="surrogatepass")
    if len(content) > CONTENT_BYTES_MAX or keccak256(content) != specification.content_hash:
        raise FalseLookup("the content is not what the specification names")
    if not any(lookup.weights.values()):
        raise FalseLookup("no validator has weight")
    image = _image_of(content)
    return CheckedLookup(
        order_id=order_id,
        attempt=lookup.attempt,
        renter=lookup.renter,
        order=None
        if image is None
        else OrderedLease(lookup.renter, terms, specification, image, lookup.renter_orders, lookup.renter_broken),
        terms=terms,
        specification=specification,
        policy_hash=policy_hash,
        spec_hash=spec_hash,
        stake_version=lookup.stake_version,
        weights=dict(lookup.weights),
    )


def _image_of(content: bytes) -> str | None:
    """Of the document that the renter wrote: anything may stand in it."""
    try:
        document: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    image = document.get("image") if isinstance(document, dict) else None
    return image if isinstance(image, str) and 0 < len(image) <= IMAGE_CHARS_MAX else None
