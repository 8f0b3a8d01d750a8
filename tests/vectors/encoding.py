"""Messages as JSON and back: numbers as they are, bytes as hex, lists as lists."""

from __future__ import annotations

import dataclasses
from typing import Any

from sparewatt.protocol.contracts import match as match_
from sparewatt.protocol.contracts import meta_transactions
from sparewatt.protocol.typed_message import TypedMessage

KINDS: tuple[type[Any], ...] = (
    match_.OrderTerms,
    match_.Profile,
    match_.Specification,
    match_.BidTerms,
    match_.Bid,
    match_.BidCommit,
    match_.CommitList,
    match_.RevealList,
    match_.BidLeaf,
    match_.Task,
    match_.Vote,
    match_.Heartbeat,
    match_.Observation,
    match_.Observations,
    match_.ReputationSnapshot,
    match_.Down,
    meta_transactions.Accept,
    meta_transactions.Resign,
    match_.Decline,
    match_.RoundReached,
)


def to_json(message: TypedMessage) -> dict[str, Any]:
    return {field.name: _written(getattr(message, field.name)) for field in dataclasses.fields(message)}


def from_json(kind: type[Any], fields: dict[str, Any]) -> Any:
    return kind(**{name: _read(value) for name, value in fields.items()})


def _written(value: object) -> object:
    match value:
        case bytes():
            return "0x" + value.hex()
        case tuple():
            return [_written(each) for each in value]
        case TypedMessage():
            return to_json(value)
        case int():
            return int(value)
        case _:
            return value


def _read(value: object) -> object:
    """An address stays text, 32 bytes become bytes: they differ in length. Only `Observations` has rows."""
    match value:
        case dict():
            return from_json(match_.Observation, value)
        case list():
            return tuple(_read(each) for each in value)
        case str() if len(value) == 66:
            return bytes.fromhex(value[2:])
        case _:
            return value
