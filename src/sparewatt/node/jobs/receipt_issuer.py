"""The node's side of receipts: signs them in batches (sheets), sends them, and keeps the countersigned pairs.

Receipts that a gateway has countersigned and does not pay are evidence against it. Pairs are lines of JSON in the data
directory; a full file replaces the one before it. A node that crashes loses receipts that it has not sent yet; its pay
does not depend on them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.log import Logger
from sparewatt.protocol.link.receipts import (
    SHEET_MAX,
    Countersignature,
    Receipt,
    SheetSignature,
    SignedReceipt,
    SignedReceipts,
    SignedSheet,
    countersign_digest,
    sheet_digest,
)
from sparewatt.protocol.signing import BadSignature, SigningKey, recover_address

FILE, OLDER_FILE = "receipts.jsonl", "receipts.1.jsonl"
FILE_BYTES_MAX = 64 << 20
"""About 150,000 pairs in each of two files."""
UNCONFIRMED_MAX = 10_000
SIGN_S = 0.5
"""How long a receipt waits for others. A signature costs a busy node more than the rest of a receipt."""
_log = Logger("sparewatt.node")
SendReceipts = Callable[[SignedReceipts], None]


class ReceiptPair(msgspec.Struct, frozen=True):
    """A line of the file. `sheets` has the node's signatures; a receipt that was signed singly has its own."""

    receipts: list[Receipt]
    sheets: list[SheetSignature]
    countersigned: Countersignature


class UnconfirmedReceipt(NamedTuple):
    """A receipt that its gateway has not confirmed yet, and the sheet that it was sent in."""

    receipt: Receipt
    seal: SheetSignature


@dataclass(slots=True, eq=False)
class ReceiptIssuer:
    directory: Path
    key: SigningKey
    clock: Clock
    _unsigned: list[Receipt] = field(init=False, default_factory=list)
    _timer: Timer | None = field(init=False, default=None)
    _unconfirmed: OrderedDict[str, UnconfirmedReceipt] = field(init=False, default_factory=OrderedDict)
    """By digest."""
    _send: SendReceipts | None = field(init=False, default=None)
    """None while there is no link."""
    _in_sheets: bool = field(init=False, default=False)
    _by_link: dict[str, ReceiptIssuer] = field(init=False, default_factory=dict)

    @property
    def node(self) -> str:
        return self.key.address

    def for_link(self, link: str) -> ReceiptIssuer:
        """The issuer for one link's jobs: only the gateway process that sent a job can countersign it."""
        if not link:
            return self
        if link not in self._by_link:
            self._by_link[link] = ReceiptIssuer(self.directory, self.key, clock=self.clock)
        return self._by_link[link]

    def retain_links(self, links: Collection[str]) -> None:
        """The gateway has other processes now: those that are gone countersign nothing more."""
        self._by_link = {name: issuer for name, issuer in self._by_link.items() if name in links}

    def issue(self, receipt: Receipt) -> None:
        """Sign it within `SIGN_S`; without a link keep it unsigned, up to a bound."""
        self._unsigned.append(receipt)
        if self._send is None:
            del self._unsigned[:-UNCONFIRMED_MAX]
        elif len(self._unsigned) >= SHEET_MAX or not self._in_sheets:
            self.sign_pending()
        elif self._timer is None:
            self._timer = self.clock.call_later(SIGN_S, self.sign_pending)

    def sign_pending(self) -> None:
        """Sign and send what has been issued since the last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._send is None:
            return
        receipts, self._unsigned = iter(self._unsigned), []
        while batch := list(islice(receipts, SHEET_MAX if self._in_sheets else 1)):
            self._send(self._sign_batch(batch))
        while len(self._unconfirmed) > UNCONFIRMED_MAX:
            self._unconfirmed.popitem(last=False)

    def _sign_batch(self, receipts: list[Receipt]) -> SignedReceipts:
        if not self._in_sheets:
            digest = receipts[0].typed_digest()
            return SignedReceipt(receipts[0], self._seal(receipts, [digest], digest))
        digests = [receipt.digest() for receipt in receipts]
        return SignedSheet(receipts, self._seal(receipts, digests, sheet_digest(self.node, digests)))

    def _seal(self, receipts: list[Receipt], digests: list[bytes], whole: bytes) -> str:
        seal = SheetSignature.of(digests, self.key.sign(whole).hex())
        self._unconfirmed |= {
            digest: UnconfirmedReceipt(receipt, seal) for digest, receipt in zip(seal.digests, receipts, strict=True)
        }
        return seal.signature

    def on_link(self, send: SendReceipts | None, *, in_sheets: bool = False) -> None:
        """A new link, or none. Receipts that were not confirmed on the last one are signed and sent again."""
        self._send, self._in_sheets = send, in_sheets
        if send is not None:
            self._unsigned[:0] = [sent.receipt for sent in self._unconfirmed.values()]
            self._unconfirmed.clear()
            self.sign_pending()

    def on_countersigned(self, message: Countersignature) -> None:
        """Write the pairs to disk, unless the countersignature is invalid."""
        digests = [bytes.fromhex(digest) for digest in message.digests]
        if message.node != self.node or not _is_valid(message, digests):
            _log.warning("countersignature_refused", gateway=message.gateway)
            return
        own = [self._unconfirmed.pop(digest) for digest in message.digests if digest in self._unconfirmed]
        if own:
            seals = {sent.seal.signature: sent.seal for sent in own}  # each sheet once
            pair = ReceiptPair([sent.receipt for sent in own], list(seals.values()), message)
            self._append_line(msgspec.json.encode(pair) + b"\n")

    def _append_line(self, line: bytes) -> None:
        path = self.directory / FILE
        try:
            if path.exists() and path.stat().st_size + len(line) > FILE_BYTES_MAX:
                path.replace(self.directory / OLDER_FILE)
            with path.open("ab") as file:
                file.write(line)
        except OSError as error:
            _log.warning("receipts_unwritable", error=error.strerror)


def _is_valid(message: Countersignature, digests: list[bytes]) -> bool:
    try:
        signer = recover_address(countersign_digest(message.node, digests), bytes.fromhex(message.signature))
    except BadSignature:
        return False
    return signer == message.gateway
