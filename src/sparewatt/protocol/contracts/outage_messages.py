"""What validators send each other about leases whose provider has gone silent, and its JSON: `{"type": …}` and members.

Written as the messages of a match are. `decode_outage_message` checks form and ranges and nothing else: who signed, and
whether the lease is in that term, is for the receiver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, get_args

from sparewatt.protocol.contracts.match import Down
from sparewatt.protocol.contracts.match_messages import Hash, Signature, decode_tagged, encode_tagged


@dataclass(frozen=True, slots=True)
class SignedDown:
    """A validator's vote that a provider is down, signed by its vote key."""

    tag: ClassVar[str] = "down"
    down: Down
    signature: Signature


@dataclass(frozen=True, slots=True)
class OutageStatus:
    """Asks what the receiver holds about a term of a lease; its votes are the answer. Nobody signs it."""

    tag: ClassVar[str] = "outage_status"
    lease_id: Hash
    term: int


OutageMessage: TypeAlias = SignedDown | OutageStatus
_KINDS: dict[str, type[Any]] = {kind.tag: kind for kind in get_args(OutageMessage)}


def encode_outage_message(message: OutageMessage) -> bytes:
    return encode_tagged(message)


def decode_outage_message(body: bytes) -> OutageMessage:
    """Raises InvalidField."""
    message: OutageMessage = decode_tagged(_KINDS, body)
    return message
