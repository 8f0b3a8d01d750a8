"""The node's receipts: signed when a job ends, sent, and kept with the gateway's countersignature.

What a gateway has countersigned and does not pay is evidence against it. Pairs are lines of JSON in the data directory;
when the file is full the one before it is dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from sparewatt.core.log import Log
from sparewatt.protocol.receipts import Countersigned, Receipt, SignedReceipt, countersign_digest
from sparewatt.protocol.signing import BadSignature, SigningKey, recover_address

FILE, OLDER_FILE = "receipts.jsonl", "receipts.1.jsonl"
FILE_BYTES_MAX = 64 << 20
"""About 100,000 pairs in each of two files."""
UNCONFIRMED_MAX = 10_000
_log = Log("sparewatt.node")


class ReceiptBook:
    def __init__(self, directory: Path, key: SigningKey) -> None:
        self._directory = directory
        self._key = key
        self._unconfirmed: OrderedDict[str, SignedReceipt] = OrderedDict()
        self.send: Callable[[SignedReceipt], None] | None = None
        """How a receipt gets to the gateway; None while there is no link."""

    @property
    def node(self) -> str:
        return self._key.address

    def write(self, receipt: Receipt) -> None:
        digest = receipt.digest()
        signed = SignedReceipt(receipt, self._key.sign(digest).hex())
        self._unconfirmed[digest.hex()] = signed
        while len(self._unconfirmed) > UNCONFIRMED_MAX:
            self._unconfirmed.popitem(last=False)
        if self.send is not None:
            self.send(signed)

    def on_link(self, send: Callable[[SignedReceipt], None] | None) -> None:
        """A new link: what was not confirmed on the last one is sent again."""
        self.send = send
        if send is not None:
            for signed in self._unconfirmed.values():
                send(signed)

    def on_countersigned(self, message: Countersigned) -> None:
        """Keep the pairs. A countersignature that does not hold is worth nothing and is not kept."""
        digests = [bytes.fromhex(digest) for digest in message.digests]
        if message.node != self.node or not _holds(message, digests):
            _log.warning("countersignature_refused", gateway=message.gateway)
            return
        mine = [self._unconfirmed.pop(digest) for digest in message.digests if digest in self._unconfirmed]
        if mine:
            self._keep(msgspec.json.encode({"receipts": mine, "countersigned": message}) + b"\n")

    def _keep(self, line: bytes) -> None:
        path = self._directory / FILE
        try:
            if path.exists() and path.stat().st_size + len(line) > FILE_BYTES_MAX:
                path.replace(self._directory / OLDER_FILE)
            with path.open("ab") as file:
                file.write(line)
        except OSError as error:
            _log.warning("receipts_unwritable", error=error.strerror)


def _holds(message: Countersigned, digests: list[bytes]) -> bool:
    try:
        signer = recover_address(countersign_digest(message.node, digests), bytes.fromhex(message.signature))
    except BadSignature:
        return False
    return signer == message.gateway
