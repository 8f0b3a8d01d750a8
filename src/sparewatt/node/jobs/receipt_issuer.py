"""The node's receipts: signed a moment after their jobs, many at once, sent, and kept with the gateway's word for them.

What a gateway has countersigned and does not pay is evidence against it. Pairs are lines of JSON in the data directory;
when the file is full the one before it is dropped. A node that dies loses what it has not sent yet: its pay does not
wait for receipts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
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
"""How long a receipt may wait for others. A signature costs a busy node more than all the rest of a receipt."""
_log = Logger("sparewatt.node")
SendReceipts = Callable[[SignedReceipts], None]


class ReceiptPair(msgspec.Struct, frozen=True):
    """A line of the file. `sheets` hold the node's signatures; a receipt that was signed by itself has its own."""

    receipts: list[Receipt]
    sheets: list[SheetSignature]
    countersigned: Countersignature


class UnconfirmedReceipt(NamedTuple):
    """A receipt that no gateway has confirmed yet, and the sheet that it was sent in."""

    receipt: Receipt
    seal: SheetSignature


class ReceiptIssuer:
    def __init__(self, directory: Path, key: SigningKey, *, clock: Clock) -> None:
        self._directory = directory
        self._key = key
        self._clock = clock
        self._unsigned: list[Receipt] = []
        self._timer: Timer | None = None
        self._unconfirmed: OrderedDict[str, UnconfirmedReceipt] = OrderedDict()
        """By digest."""
        self._send: SendReceipts | None = None
        """How a receipt gets to the gateway; None while there is no link."""
        self._in_sheets = False
        self._by_link: dict[str, ReceiptIssuer] = {}

    @property
    def node(self) -> str:
        return self._key.address

    def for_link(self, link: str) -> ReceiptIssuer:
        """Where the receipts of one link's jobs are written: only the process that sent a job knows of it."""
        if not link:
            return self
        if link not in self._by_link:
            self._by_link[link] = ReceiptIssuer(self._directory, self._key, clock=self._clock)
        return self._by_link[link]

    def retain_links(self, links: Collection[str]) -> None:
        """The gateway has other processes now: those that are gone confirm nothing more."""
        self._by_link = {name: book for name, book in self._by_link.items() if name in links}

    def issue(self, receipt: Receipt) -> None:
        """Signed within half a second; kept unsigned, up to a bound, while there is no link."""
        self._unsigned.append(receipt)
        if self._send is None:
            del self._unsigned[:-UNCONFIRMED_MAX]
        elif len(self._unsigned) >= SHEET_MAX or not self._in_sheets:
            self.sign_pending()
        elif self._timer is None:
            self._timer = self._clock.call_later(SIGN_S, self.sign_pending)

    def sign_pending(self) -> None:
        """Sign and send what has been written since the last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._send is None:
            return
        receipts, self._unsigned = iter(self._unsigned), []
        while some := list(islice(receipts, SHEET_MAX if self._in_sheets else 1)):
            self._send(self._sign_batch(some))
        while len(self._unconfirmed) > UNCONFIRMED_MAX:
            self._unconfirmed.popitem(last=False)

    def _sign_batch(self, receipts: list[Receipt]) -> SignedReceipts:
        if not self._in_sheets:
            digest = receipts[0].typed_digest()
            return SignedReceipt(receipts[0], self._seal(receipts, [digest], digest))
        digests = [receipt.digest() for receipt in receipts]
        return SignedSheet(receipts, self._seal(receipts, digests, sheet_digest(self.node, digests)))

    def _seal(self, receipts: list[Receipt], digests: list[bytes], whole: bytes) -> str:
        seal = SheetSignature.of(digests, self._key.sign(whole).hex())
        self._unconfirmed |= {
            digest: UnconfirmedReceipt(receipt, seal) for digest, receipt in zip(seal.digests, receipts, strict=True)
        }
        return seal.signature

    def on_link(self, send: SendReceipts | None, *, in_sheets: bool = False) -> None:
        """A new link, or none. What was not confirmed on the last one is signed and sent again on the next."""
        self._send, self._in_sheets = send, in_sheets
        if send is not None:
            self._unsigned[:0] = [sent.receipt for sent in self._unconfirmed.values()]
            self._unconfirmed.clear()
            self.sign_pending()

    def on_countersigned(self, message: Countersignature) -> None:
        """Keep the pairs. A countersignature that does not hold is worth nothing and is not kept."""
        digests = [bytes.fromhex(digest) for digest in message.digests]
        if message.node != self.node or not _is_valid(message, digests):
            _log.warning("countersignature_refused", gateway=message.gateway)
            return
        mine = [self._unconfirmed.pop(digest) for digest in message.digests if digest in self._unconfirmed]
        if mine:
            pair = ReceiptPair([sent.receipt for sent in mine], _seals_of(mine), message)
            self._append_line(msgspec.json.encode(pair) + b"\n")

    def _append_line(self, line: bytes) -> None:
        path = self._directory / FILE
        try:
            if path.exists() and path.stat().st_size + len(line) > FILE_BYTES_MAX:
                path.replace(self._directory / OLDER_FILE)
            with path.open("ab") as file:
                file.write(line)
        except OSError as error:
            _log.warning("receipts_unwritable", error=error.strerror)


def _seals_of(sent: Iterable[UnconfirmedReceipt]) -> list[SheetSignature]:
    """Each once."""
    return list({each.seal.signature: each.seal for each in sent}.values())


def _is_valid(message: Countersignature, digests: list[bytes]) -> bool:
    try:
        signer = recover_address(countersign_digest(message.node, digests), bytes.fromhex(message.signature))
    except BadSignature:
        return False
    return signer == message.gateway
