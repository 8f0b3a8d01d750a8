"""What nodes and validators send each other about snapshots, and its JSON: `{"type": …}` and the message's members.

Written as the messages of a match are. `decode_snapshot_message` checks form and ranges and nothing else: who signed,
and whether it fits the epoch, is for the receiver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias, get_args

from sparewatt.protocol.contracts.match import Heartbeat, Observations, Profile, ReputationSnapshot
from sparewatt.protocol.contracts.match_messages import (
    Hash,
    Signature,
    decode_object,
    decode_tagged,
    encode_tagged,
    read_object,
)
from sparewatt.protocol.contracts.message_ranges import require_in_range
from sparewatt.protocol.typed_message import TypedMessage, Uint32, Uint64


class ProfileTable(TypedMessage):
    """The table of an epoch, ascending by provider, and the block that its chain facts were read at.

    Nobody signs it: its rows hash to the root that validators signed.
    """

    epoch: Uint32
    height: Uint64
    rows: Annotated[tuple[Profile, ...], "Profile[]"]


@dataclass(frozen=True, slots=True)
class SignedHeartbeat:
    """Signed by the provider's node key."""

    heartbeat: Heartbeat
    signature: Signature


@dataclass(frozen=True, slots=True)
class SignedObservations:
    """What one validator saw, signed by its vote key."""

    tag: ClassVar[str] = "observations"
    observations: Observations
    signature: Signature


@dataclass(frozen=True, slots=True)
class SignedSnapshot:
    """A vote for the table of an epoch, in a round."""

    tag: ClassVar[str] = "snapshot_vote"
    snapshot: ReputationSnapshot
    signature: Signature


@dataclass(frozen=True, slots=True)
class SnapshotProposal:
    """A leader's own vote and everything that is needed to recompute it: the observations in full.

    A receiver must not depend on what it holds itself: a validator that signs two observations would split the voters.
    """

    tag: ClassVar[str] = "snapshot_proposal"
    vote: SignedSnapshot
    height: int
    observations: tuple[SignedObservations, ...]


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """What a validator holds of an epoch; the receiver answers with what is missing.

    Observations are named by the hash of their signature: two validators often see the same. For an epoch that is
    posted, a status asks for the book.
    """

    tag: ClassVar[str] = "snapshot_status"
    epoch: int
    round: int
    has_proposal: int
    """1 if it holds the proposal of this round."""
    observations: tuple[Hash, ...]


@dataclass(frozen=True, slots=True)
class SnapshotBook:
    """The table of a posted epoch and what it was computed from. Its rows are checked against the root on chain."""

    tag: ClassVar[str] = "snapshot_book"
    table: ProfileTable
    observations: tuple[SignedObservations, ...]


SnapshotMessage: TypeAlias = SignedObservations | SignedSnapshot | SnapshotProposal | SnapshotStatus | SnapshotBook
_KINDS: dict[str, type[Any]] = {kind.tag: kind for kind in get_args(SnapshotMessage)}


def encode_snapshot_message(message: SnapshotMessage) -> bytes:
    return encode_tagged(message)


def decode_snapshot_message(body: bytes) -> SnapshotMessage:
    """Raises InvalidField."""
    message: SnapshotMessage = decode_tagged(_KINDS, body)
    if isinstance(message, SnapshotBook):
        for row in message.table.rows:
            require_in_range(row)
    return message


def decode_heartbeat(body: bytes) -> SignedHeartbeat:
    """Raises InvalidField."""
    beat: SignedHeartbeat = read_object(SignedHeartbeat, decode_object(body))
    return beat
