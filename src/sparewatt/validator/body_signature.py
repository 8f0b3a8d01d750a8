"""Signatures of large bodies between validators.

What providers send is small. Lists and proposals may have megabytes, which cost memory and seconds to decode; and the
signatures within are public, so anyone could wrap a true list in megabytes of waste. A validator therefore signs the
hash of a large body for its receiver, in the request's head: the receiver reads no large body of anyone else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from sparewatt.core.limits import KIB
from sparewatt.protocol.signing import BadSignature, Domain, SigningKey, keccak256, recover_address
from sparewatt.protocol.typed_message import Address, Bytes32, TypedMessage, message_digest

SMALL_BODY_BYTES_MAX = 16 * KIB
"""Of a body that anyone may send: three times the largest heartbeat, and ten times a reveal."""
HASH_HEADER = "Sparewatt-Body-Hash"
SIGNATURE_HEADER = "Sparewatt-Body-Signature"
_HASH = re.compile(r"0x[0-9a-f]{64}")
_SIGNATURE = re.compile(r"0x[0-9a-f]{130}")


class BodyHash(TypedMessage):
    """Signed by a vote key."""

    receiver: Address
    """The vote key of the validator that it is sent to: it cannot send the body on as another's."""
    body_hash: Bytes32


class SignedBody(NamedTuple):
    sender: str
    """A vote key."""
    body_hash: bytes


def sign_body(body: bytes, *, key: SigningKey, receiver: str, domain: Domain) -> dict[str, str]:
    """The headers of a large body."""
    body_hash = keccak256(body)
    signature = key.sign(message_digest(domain, BodyHash(receiver.lower(), body_hash)))
    return {HASH_HEADER: "0x" + body_hash.hex(), SIGNATURE_HEADER: "0x" + signature.hex()}


def read_body_signature(headers: Mapping[str, str], *, receiver: str, domain: Domain) -> SignedBody | None:
    """Who signed, before the body is read. None for an unsigned body."""
    body_hash, signature = headers.get(HASH_HEADER, ""), headers.get(SIGNATURE_HEADER, "")
    if not _HASH.fullmatch(body_hash) or not _SIGNATURE.fullmatch(signature):
        return None
    hashed = bytes.fromhex(body_hash[2:])
    digest = message_digest(domain, BodyHash(receiver.lower(), hashed))
    try:
        return SignedBody(recover_address(digest, bytes.fromhex(signature[2:])).lower(), hashed)
    except BadSignature:
        return None
