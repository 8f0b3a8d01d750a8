"""What providers and validators send each other during a match, and its JSON: `{"type": …}` and the message's members.

A signature is 65 bytes, written as 0x-hex; signed structs are written by `message_json`. `decode_message` checks form
and ranges and nothing else: who signed, and whether it fits the order, is for the receiver.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.match import (
    Bid,
    BidCommit,
    BidLeaf,
    BidTerms,
    CommitList,
    Decline,
    RevealList,
    RoundReached,
    Specification,
    Task,
    Vote,
)
from sparewatt.protocol.contracts.message_json import read_message, write_message
from sparewatt.protocol.contracts.message_ranges import LEAVES_END
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import TypedMessage, struct_hash

ITEMS_MAX = 4 * LEAVES_END
"""Entries of any list in a message: contradictory lists of 32 validators included."""
_SIGNATURE = re.compile(r"0x[0-9a-f]{130}")
_HASH = re.compile(r"0x[0-9a-f]{64}")

Signature = Annotated[bytes, "signature"]
Hash = Annotated[bytes, "hash"]


@dataclass(frozen=True, slots=True)
class SignedCommit:
    """A provider's sealed bid, signed by its node key."""

    tag: ClassVar[str] = "commit"
    commit: BidCommit
    signature: Signature


@dataclass(frozen=True, slots=True)
class SignedDecline:
    tag: ClassVar[str] = "decline"
    decline: Decline
    signature: Signature


@dataclass(frozen=True, slots=True)
class RevealedBid:
    """Needs no signature: its hash was signed with the commit."""

    tag: ClassVar[str] = "reveal"
    bid: Bid
    terms: BidTerms
    specification: Specification


@dataclass(frozen=True, slots=True)
class SignedCommitList:
    """With the commits that it names."""

    tag: ClassVar[str] = "commit_list"
    list: CommitList
    signature: Signature
    commits: tuple[SignedCommit, ...]


@dataclass(frozen=True, slots=True)
class SignedRevealList:
    """With the bids that it names, and all commit lists that its signer holds."""

    tag: ClassVar[str] = "reveal_list"
    list: RevealList
    signature: Signature
    bids: tuple[RevealedBid, ...]
    commit_lists: tuple[SignedCommitList, ...]


@dataclass(frozen=True, slots=True)
class SignedVote:
    tag: ClassVar[str] = "vote"
    vote: Vote
    signature: Signature


@dataclass(frozen=True, slots=True)
class Proposal:
    """A leader's own vote and everything that is needed to recompute it."""

    tag: ClassVar[str] = "proposal"
    vote: SignedVote
    task: Task
    leaves: tuple[BidLeaf, ...]
    bids: tuple[RevealedBid, ...]
    commits: tuple[SignedCommit, ...]
    commit_lists: tuple[SignedCommitList, ...]


@dataclass(frozen=True, slots=True)
class MissingBids:
    """A voter's answer to a proposal that leaves out bids of its reveal list."""

    tag: ClassVar[str] = "missing"
    round: int
    reveal_list: SignedRevealList


@dataclass(frozen=True, slots=True)
class MatchStatus:
    """What a validator holds of a match; the receiver answers with what is missing.

    A list is named by its `list_digest`. `task_hash` is the task proposed in this round, as far as it is known, else 0.
    """

    tag: ClassVar[str] = "status"
    reached: RoundReached
    signature: Signature
    task_hash: Hash
    commit_lists: tuple[Hash, ...]
    reveal_lists: tuple[Hash, ...]


MatchMessage: TypeAlias = (
    SignedCommit
    | SignedDecline
    | RevealedBid
    | SignedCommitList
    | SignedRevealList
    | SignedVote
    | Proposal
    | MissingBids
    | MatchStatus
)
_KINDS: dict[str, type[Any]] = {kind.tag: kind for kind in get_args(MatchMessage)}


def list_digest(signed: CommitList | RevealList, *, signer: str) -> bytes:
    """Names a validator's list: those of different validators may say the same."""
    return keccak256(struct_hash(signed) + bytes.fromhex(signer[2:]))


def encode_message(message: MatchMessage) -> bytes:
    return encode_tagged(message)


def decode_message(body: bytes) -> MatchMessage:
    """Raises InvalidField."""
    message: MatchMessage = decode_tagged(_KINDS, body)
    return message


def encode_tagged(message: Any) -> bytes:
    return msgspec.json.encode({"type": message.tag, **write_object(message)})


def decode_tagged(kinds: Mapping[str, type[Any]], body: bytes) -> Any:
    """A message of the class that its `type` names. Raises InvalidField."""
    document = decode_object(body)
    tag = document.get("type")
    if not isinstance(tag, str) or tag not in kinds:
        raise InvalidField(f"'type' is one of {', '.join(kinds)}.", param="type")
    return read_object(kinds[tag], {name: value for name, value in document.items() if name != "type"})


def decode_object(body: bytes) -> Mapping[str, Any]:
    """Raises InvalidField."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the last: nested too deeply
        document = None
    if not isinstance(document, Mapping):
        raise InvalidField("A message is a JSON object.", param="body")
    return document


def write_object(message: Any) -> dict[str, Any]:
    """A dataclass of this module, or one made of the same types, as a JSON object."""
    return {name: _written(getattr(message, name)) for name in _fields(type(message))}


def read_object(kind: type[Any], document: object) -> Any:
    """Exactly the fields of the class. Raises InvalidField."""
    fields = _fields(kind)
    if not isinstance(document, Mapping) or set(document) != set(fields):
        raise InvalidField(f"A {kind.__name__} has exactly the members {', '.join(fields)}.", param=kind.__name__)
    return kind(**{name: _read(name, hint, document[name]) for name, hint in fields.items()})


def _written(value: Any) -> Any:
    match value:
        case bytes():
            return "0x" + value.hex()
        case tuple():
            return [_written(each) for each in value]
        case TypedMessage():
            return write_message(value)
        case int() | str() | None:
            return value
        case _:
            return write_object(value)


def _read(name: str, hint: Any, value: object) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list) or len(value) > ITEMS_MAX:
            raise InvalidField(f"{name} is a list of at most {ITEMS_MAX} entries.", param=name)
        return tuple(_read(name, get_args(hint)[0], each) for each in value)
    if get_origin(hint) is Annotated:
        pattern = _SIGNATURE if "signature" in get_args(hint) else _HASH
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidField(f"{name} is 0x and lower-case hex digits.", param=name)
        return bytes.fromhex(value[2:])
    if hint is int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
            raise InvalidField(f"{name} is a whole number.", param=name)
        return value
    if issubclass(hint, TypedMessage):
        return read_message(hint, value)
    return read_object(hint, value)


def _fields(kind: type[Any]) -> dict[str, Any]:
    cls: Any = kind  # mypy does not accept a class as hashable
    fields: dict[str, Any] = _fields_of(cls)
    return fields


@cache
def _fields_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
