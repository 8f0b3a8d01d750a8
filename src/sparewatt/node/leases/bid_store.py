"""Bids and receipts on disk. A bid is durable before its commit leaves, so that a restart sends the same again.

One file for each bid or lease, and one for the signed lists of each attempt, of which the newest are kept: they prove
what validators received. Calls block for a disk's flush: the caller runs them in a thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sparewatt.core.errors import InvalidField
from sparewatt.core.log import Logger
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.node.leases.commit_log import CommitLog
from sparewatt.node.leases.reservations import RESERVATIONS_MAX, ReservationState
from sparewatt.protocol.contracts.match import BidTerms, OrderTerms, Specification
from sparewatt.protocol.contracts.message_json import read_message
from sparewatt.protocol.link.lease_frames import Hash, LeaseLookup, MarketFacts

_log = Logger("sparewatt.node")
FOLDER, BIDS, RECEIPTS = "leases", "bids", "receipts"
FILE_BYTES_MAX = 4 * 1024 * 1024
RECEIPTS_KEPT_MAX = 200
"""Attempts whose lists are kept."""


class StoredBid(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to bid the same again, and to know what was promised."""

    lookup: LeaseLookup
    facts: MarketFacts
    price_uusd: int
    terms: dict[str, Any]
    """`BidTerms`, as `write_message` writes them."""
    salt: Hash
    seen_unix_s: float
    state: ReservationState = ReservationState.BIDDING
    term: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    pay_uusd: int = 0

    @property
    def key(self) -> tuple[bytes, int]:
        return bytes.fromhex(self.lookup.order_id[2:]), self.lookup.attempt

    def policy(self) -> OrderTerms:
        return read_message(OrderTerms, self.lookup.policy)

    def specification(self) -> Specification:
        return read_message(Specification, self.lookup.specification)

    def bid_terms(self) -> BidTerms:
        return read_message(BidTerms, self.terms)


class BidStore:
    def __init__(self, data_dir: Path) -> None:
        self._bids = data_dir / FOLDER / BIDS
        self._receipts = data_dir / FOLDER / RECEIPTS
        self._commits = CommitLog(data_dir / FOLDER)

    def has_committed(self, key: tuple[bytes, int]) -> bool:
        """Whether a bid was made in this attempt, also if nothing else is left of it."""
        return key in self._commits

    def read_all(self, *, unix_s: float) -> list[StoredBid]:
        """What cannot be read is left where it is, and named in the log."""
        self._commits.load(unix_s=unix_s)
        found = []
        for path in sorted(self._bids.glob("*.json"))[: 2 * RESERVATIONS_MAX]:
            try:
                found.append(_checked(msgspec.json.decode(_read_bounded(path), type=StoredBid)))
            except (OSError, ValueError, RecursionError, InvalidField) as error:
                _log.warning("bid_not_read", file=path.name, why=type(error).__name__)
        return found

    def write(self, bid: StoredBid) -> None:
        """Raises OSError or StartupError: then nothing may be sent."""
        make_private_dir(self._bids)
        write_private(self._path(self._bids, bid.key), msgspec.json.encode(bid))
        self._commits.add(bid.key, unix_s=bid.seen_unix_s)

    def remove(self, key: tuple[bytes, int]) -> None:
        self._path(self._bids, key).unlink(missing_ok=True)

    def write_receipts(self, key: tuple[bytes, int], lists: list[dict[str, Any]]) -> None:
        """Replaces what was kept of this attempt."""
        body = msgspec.json.encode(lists)
        if len(body) > FILE_BYTES_MAX:
            return
        make_private_dir(self._receipts)
        write_private(self._path(self._receipts, key), body)
        kept = sorted(self._receipts.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for old in kept[RECEIPTS_KEPT_MAX:]:
            old.unlink(missing_ok=True)

    def read_receipts(self, key: tuple[bytes, int]) -> list[dict[str, Any]]:
        try:
            return msgspec.json.decode(_read_bounded(self._path(self._receipts, key)), type=list[dict[str, Any]])
        except FileNotFoundError:
            return []

    @staticmethod
    def _path(folder: Path, key: tuple[bytes, int]) -> Path:
        return folder / f"{key[0].hex()}-{key[1]}.json"


def _checked(bid: StoredBid) -> StoredBid:
    """Raises InvalidField."""
    for read in (bid.policy, bid.specification, bid.bid_terms):
        read()
    return bid


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        body = file.read(FILE_BYTES_MAX + 1)
    if len(body) > FILE_BYTES_MAX:
        raise ValueError("the file is too long")
    return body
