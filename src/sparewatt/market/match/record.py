"""What a validator keeps of a match, so that anybody can recompute it; and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.model import AuctionContext, MatchNote
from sparewatt.protocol.contracts.match import OrderTerms, Profile
from sparewatt.protocol.contracts.match_messages import (
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    SignedVote,
    read_object,
    write_object,
)
from sparewatt.protocol.contracts.message_json import read_message, write_message
from sparewatt.protocol.signing import Domain
from sparewatt.protocol.typed_message import contract_domain

ROWS_MAX = 1 << 16
"""Entries of a list or table in a record."""
TEXT_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionRecord:
    """Of one validator. Everything but the notes is signed, or bound by a hash that is."""

    context: AuctionContext
    validator: str
    """Its vote key."""
    commits: tuple[SignedCommit, ...] = ()
    declines: tuple[SignedDecline, ...] = ()
    commit_lists: tuple[SignedCommitList, ...] = ()
    """Of all validators, contradictory ones included. Their commits are in `commits`."""
    reveals: tuple[RevealedBid, ...] = ()
    reveal_lists: tuple[SignedRevealList, ...] = ()
    """Without bids and commit lists, which are in the members above."""
    proposals: tuple[Proposal, ...] = ()
    """Without bids, commits and commit lists."""
    votes: tuple[SignedVote, ...] = ()
    notes: tuple[MatchNote, ...] = ()


_ROWS: dict[str, type[Any]] = {
    "commits": SignedCommit,
    "declines": SignedDecline,
    "commit_lists": SignedCommitList,
    "reveals": RevealedBid,
    "reveal_lists": SignedRevealList,
    "proposals": Proposal,
    "votes": SignedVote,
}
_NUMBERS = ("attempt", "snapshot_epoch", "stake_version")
_HASHES = ("order_id", "policy_hash", "spec_hash", "snapshot_root")
_NOTE_NUMBERS = ("at_ms", "code", "late_by_ms")
_NOTE_TEXTS = ("what", "subject")


def write_record(record: AuctionRecord) -> dict[str, Any]:
    return {
        "context": _write_context(record.context),
        "validator": record.validator,
        **{name: [write_object(row) for row in getattr(record, name)] for name in _ROWS},
        "notes": [{name: getattr(note, name) for name in (*_NOTE_NUMBERS, *_NOTE_TEXTS)} for note in record.notes],
    }


def read_record(document: object) -> AuctionRecord:
    """The record of a decoded JSON object: forms and ranges only, nothing is believed yet. Raises InvalidField."""
    members = _members(document, {"context", "validator", "notes", *_ROWS}, "record")
    rows: dict[str, Any] = {
        name: tuple(read_object(kind, row) for row in _list(members[name], name)) for name, kind in _ROWS.items()
    }
    return AuctionRecord(
        context=_read_context(members["context"]),
        validator=_text(members["validator"], "validator"),
        notes=tuple(_read_note(each) for each in _list(members["notes"], "notes")),
        **rows,
    )


def _write_context(context: AuctionContext) -> dict[str, Any]:
    return {
        "domain": {"chain_id": context.domain.chain_id, "contract": context.domain.verifying_contract},
        **{name: "0x" + getattr(context, name).hex() for name in _HASHES},
        **{name: getattr(context, name) for name in _NUMBERS},
        "terms": write_message(context.terms),
        "weights": dict(context.weights),
        "profiles": [write_message(profile) for profile in context.profiles.values()],
        "node_keys": dict(context.node_keys),
    }


def _read_context(document: object) -> AuctionContext:
    names = {"domain", "terms", "weights", "profiles", "node_keys", *_HASHES, *_NUMBERS}
    members = _members(document, names, "context")
    profiles = [read_message(Profile, each) for each in _list(members["profiles"], "profiles")]
    weights, node_keys = _table(members["weights"], "weights"), _table(members["node_keys"], "node_keys")
    numbers: dict[str, Any] = {name: _number(members[name], name) for name in _NUMBERS}
    hashes: dict[str, Any] = {name: _hash(members[name], name) for name in _HASHES}
    return AuctionContext(
        domain=_read_domain(members["domain"]),
        terms=read_message(OrderTerms, members["terms"]),
        weights={key: _number(weight, "weights") for key, weight in weights.items()},
        profiles={profile.provider: profile for profile in profiles},
        node_keys={provider: _text(key, "node_keys") for provider, key in node_keys.items()},
        **numbers,
        **hashes,
    )


def _read_domain(document: object) -> Domain:
    members = _members(document, {"chain_id", "contract"}, "domain")
    contract = _text(members["contract"], "contract")
    return contract_domain(chain_id=_number(members["chain_id"], "chain_id"), contract=contract)


def _read_note(document: object) -> MatchNote:
    members = _members(document, {*_NOTE_NUMBERS, *_NOTE_TEXTS}, "notes")
    numbers: dict[str, Any] = {name: _number(members[name], name) for name in _NOTE_NUMBERS}
    texts: dict[str, Any] = {name: _text(members[name], name) for name in _NOTE_TEXTS}
    return MatchNote(**numbers, **texts)


def _members(document: object, names: set[str], param: str) -> Mapping[str, object]:
    if not isinstance(document, Mapping) or set(document) != names:
        raise InvalidField(f"{param} is an object with exactly {', '.join(sorted(names))}.", param=param)
    return document


def _list(value: object, param: str) -> list[object]:
    if not isinstance(value, list) or len(value) > ROWS_MAX:
        raise InvalidField(f"{param} is a list of at most {ROWS_MAX} entries.", param=param)
    return value


def _table(value: object, param: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or len(value) > ROWS_MAX:
        raise InvalidField(f"{param} is an object of at most {ROWS_MAX} members.", param=param)
    return value


def _number(value: object, param: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise InvalidField(f"{param} is a whole number.", param=param)
    return value


def _text(value: object, param: str) -> str:
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise InvalidField(f"{param} is a text of at most {TEXT_MAX} characters.", param=param)
    return value


def _hash(value: object, param: str) -> bytes:
    text = _text(value, param)
    try:
        found = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        found = b""
    if len(found) != 32:
        raise InvalidField(f"{param} is 0x and 64 hex digits.", param=param)
    return found
