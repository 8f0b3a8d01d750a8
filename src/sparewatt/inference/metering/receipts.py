"""Receipts at the gateway: matched with what was seen, checked, kept, countersigned. Money does not wait for them.

A node is paid for what the gateway has seen, with or without a receipt. A receipt that claims more is kept as disputed:
evidence against the node, or, countersigned, evidence against a gateway that pays less than it saw.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from sparewatt.core.clock import Clock
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import NODES_MAX, RECEIPTS_WAITING_MAX
from sparewatt.core.log import Log
from sparewatt.inference.metering.rules import disagrees
from sparewatt.ledger.model import ClosedJob
from sparewatt.protocol.receipts import BATCH_MAX, Countersigned, SignedReceipt, countersign_digest
from sparewatt.protocol.signing import BadSignature, SigningKey, recover_address
from sparewatt.store.books import Books, ReceiptRow

_log = Log("sparewatt.receipts")
Which = tuple[MatchId, NodeId]
_T = TypeVar("_T")


class Checked(NamedTuple):
    row: ReceiptRow
    digest: bytes


class ReceiptDesk:
    def __init__(
        self, books: Books, key: SigningKey, *, clock: Clock, spot_check: Callable[[], bool] = lambda: True
    ) -> None:
        """`spot_check` says, by chance, whether a signature is checked though its receipt claims no more than was seen.

        A receipt that claims more always is: it must hold as evidence. So is every later one of a node caught once.
        """
        self._books = books
        self._key = key
        self._clock = clock
        self._spot_check = spot_check
        self._caught: set[NodeId] = set()
        self._seen: OrderedDict[Which, tuple[int, float]] = OrderedDict()
        """Tokens seen, and when the job was opened, of deliveries without a receipt."""
        self._came: OrderedDict[Which, SignedReceipt] = OrderedDict()
        self._known: OrderedDict[Which, bytes] = OrderedDict()
        self.refused = 0
        """Receipts that belong to no delivery, or say something else than an earlier one, or are not signed right."""
        self.send: Callable[[NodeId, Countersigned], None] = lambda _node, _message: None

    def expect(self, closed: ClosedJob) -> None:
        for delivery in closed.deliveries:
            which = (closed.job.id, delivery.node_id)
            _keep(self._seen, which, (delivery.completion_tokens, closed.job.opened_unix_s))

    def on_receipt(self, node_id: NodeId, signed: SignedReceipt) -> None:
        """From a node's link. Only its own, and each once."""
        which = (MatchId(signed.receipt.job), node_id)
        if signed.receipt.node != node_id or which in self._came:
            self.refused += 1
            return
        _keep(self._came, which, signed)

    async def settle(self) -> None:
        """Check what has come since the last time, keep it, and tell the nodes."""
        again, fresh = self._take()
        rows = await asyncio.to_thread(self._check, fresh)
        if rows:
            await self._books.save_receipts([checked.row for checked in rows])
        for checked in rows:
            _keep(self._known, (checked.row.job_id, checked.row.node_id), checked.digest)
        by_node: dict[NodeId, list[bytes]] = {}
        for node_id, digest in [*again, *((checked.row.node_id, checked.digest) for checked in rows)]:
            by_node.setdefault(node_id, []).append(digest)
        for node_id, digests in by_node.items():
            for at in range(0, len(digests), BATCH_MAX):
                self.send(node_id, self._countersigned(node_id, digests[at : at + BATCH_MAX]))

    def _take(self) -> tuple[list[tuple[NodeId, bytes]], list[tuple[SignedReceipt, int, float]]]:
        """Receipts that were handled before, and those whose job is closed by now. The others wait."""
        again, fresh = [], []
        for which, signed in list(self._came.items()):
            if which in self._known:
                del self._came[which]
                if self._known[which] == signed.receipt.digest():
                    again.append((which[1], self._known[which]))
                else:
                    self.refused += 1
            elif which in self._seen:
                del self._came[which]
                fresh.append((signed, *self._seen.pop(which)))
        return again, fresh

    def _check(self, fresh: Sequence[tuple[SignedReceipt, int, float]]) -> list[Checked]:
        """In a thread: checking a signature takes as long as a match."""
        found = []
        for signed, seen, opened_unix_s in fresh:
            receipt, digest = signed.receipt, signed.receipt.digest()
            if self._must_check(signed, seen) and not _is_signed(signed, digest):
                self._refuse(signed)
                continue
            row = ReceiptRow(
                job_id=MatchId(receipt.job),
                node_id=NodeId(receipt.node),
                unix_s=opened_unix_s,
                prompt_tokens=receipt.prompt_tokens,
                completion_tokens=receipt.completion_tokens,
                seen_tokens=seen,
                disputed=disagrees(receipt.completion_tokens, seen),
                signature=bytes.fromhex(signed.signature),
            )
            found.append(Checked(row, digest))
        return found

    def _must_check(self, signed: SignedReceipt, seen: int) -> bool:
        if disagrees(signed.receipt.completion_tokens, seen) or signed.receipt.node in self._caught:
            return True
        return self._spot_check()

    def _refuse(self, signed: SignedReceipt) -> None:
        self.refused += 1
        if len(self._caught) < NODES_MAX:
            self._caught.add(NodeId(signed.receipt.node))
        _log.warning("receipt_refused", node=signed.receipt.node, job=signed.receipt.job)

    def _countersigned(self, node_id: NodeId, digests: Sequence[bytes]) -> Countersigned:
        signature = self._key.sign(countersign_digest(node_id, digests))
        return Countersigned(
            node=node_id,
            digests=[digest.hex() for digest in digests],
            gateway=self._key.address,
            signature=signature.hex(),
        )


def _is_signed(signed: SignedReceipt, digest: bytes) -> bool:
    try:
        return recover_address(digest, bytes.fromhex(signed.signature)) == signed.receipt.node
    except BadSignature:
        return False


def _keep(kept: OrderedDict[Which, _T], which: Which, what: _T) -> None:
    kept[which] = what
    while len(kept) > RECEIPTS_WAITING_MAX:
        kept.popitem(last=False)
