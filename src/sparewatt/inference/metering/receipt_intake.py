"""Receipts at the gateway: matched with what was seen, checked, kept, countersigned. Money does not wait for them.

A node is paid for what the gateway has seen, with or without a receipt. A receipt that claims more is kept as disputed:
evidence against the node, or, countersigned, evidence against a gateway that pays less than it saw. Receipts come in
sheets under one signature, or one by one; what is kept is one row each.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.generations import Generations
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.log import Logger
from sparewatt.inference.metering.rules import DONE_WORD, disagrees
from sparewatt.ledger.model import ClosedJob
from sparewatt.protocol.link.receipts import BATCH_MAX, Countersignature, Receipt, SignedReceipts, countersign_digest
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.ledger import LedgerStore, ReceiptRow

RECEIPTS_WAITING_MAX = 50_000
"""Receipts, and deliveries that have none yet, which a gateway remembers; more than a minute's worth at full speed."""

RECEIPT_KEPT_S = 600.0
"""How long they are remembered at least, up to that number: a node that lost its link sends again what it has no
countersignature for, and one that never sends receipts must not fill the memory."""

RECEIPT_WAIT_S = 30.0
"""A receipt follows its job at once; one that comes later than this belongs to nothing any more."""

RECEIPTS_PER_NODE_MAX = 10_000
"""Of those that came before their job was over, one node's: as many as it keeps itself, and no node crowds out all."""

_log = Logger("sparewatt.receipts")
SIGNED_AT_ONCE = 8
"""Countersignatures in one tick of the event loop: half a millisecond."""
Which = tuple[MatchId, NodeId]


class ExpectedReceipt(msgspec.Struct, frozen=True, gc=False):
    """A delivery that was seen, and that a receipt should come for."""

    tokens: int
    opened_unix_s: float
    was_cut: bool
    """It was stopped half-way: the node may have written on for a moment, and that is no lie."""


class ReceiptLine(msgspec.Struct, frozen=True, gc=False):
    """A receipt and its state."""

    signed: SignedReceipts
    at: int

    @property
    def receipt(self) -> Receipt:
        return self.signed.receipts[self.at]


class EarlyReceipt(msgspec.Struct, frozen=True, gc=False):
    line: ReceiptLine
    came_at_s: float


class CheckedReceipt(msgspec.Struct, frozen=True, gc=False):
    row: ReceiptRow
    receipt: Receipt
    digest: bytes


class ReceiptIntake:
    def __init__(
        self,
        books: LedgerStore,
        key: SigningKey,
        *,
        clock: Clock,
        send: Callable[[NodeId, Countersignature], None] = lambda _node, _message: None,
    ) -> None:
        """`send`: brings a node the countersignatures of its receipts."""
        self._send = send
        self._books = books
        self._key = key
        self._clock = clock
        self._seen: Generations[int, ExpectedReceipt] = Generations(
            period_s=RECEIPT_KEPT_S, size_max=RECEIPTS_WAITING_MAX
        )
        """By the hash of job and node."""
        self._early: OrderedDict[Which, EarlyReceipt] = OrderedDict()
        self._early_of: Counter[NodeId] = Counter()
        self._taken: dict[Which, Receipt] = {}
        """Accepted, and not kept yet."""
        self._kept: Generations[int, None] = Generations(period_s=RECEIPT_KEPT_S, size_max=RECEIPTS_WAITING_MAX)
        """Hashes of receipts that were kept: of whole ones, so that one with other content is not among them."""
        self._again: dict[Which, ReceiptLine] = {}
        """Kept before, and sent again."""
        self._ready: list[tuple[ReceiptLine, ExpectedReceipt]] = []
        self._checked: list[CheckedReceipt] = []
        self._untold: dict[NodeId, list[bytes]] = {}
        """Stored and not yet acknowledged to the node: a signature for each node."""
        self._settling = asyncio.Lock()
        self.refused = 0
        """Receipts without a delivery, with other content than an earlier one, or with a bad signature."""

    # what comes

    def expect(self, closed: ClosedJob) -> None:
        job = closed.job
        for delivery in closed.deliveries:
            which = (job.id, delivery.node_id)
            was_cut = delivery.outcome != DONE_WORD
            expected = ExpectedReceipt(delivery.completion_tokens, job.opened_unix_s, was_cut)
            early = self._early.pop(which, None)
            if early is None:
                self._seen.put(hash(which), expected, now_s=self._clock.now_s())
            else:
                self._early_of[delivery.node_id] -= 1
                self._accept(which, early.line, expected)

    def on_receipt(self, node_id: NodeId, signed: SignedReceipts) -> None:
        """From a node's link. Only its own, and each once; one that came before is countersigned again."""
        for at, receipt in enumerate(signed.receipts):
            self._take(node_id, ReceiptLine(signed, at), receipt)

    def _take(self, node_id: NodeId, line: ReceiptLine, receipt: Receipt) -> None:
        which = (MatchId(receipt.job), node_id)
        if receipt.node != node_id or which in self._early:
            self.refused += 1
        elif (taken := self._taken.get(which)) is not None:
            self.refused += receipt != taken
        elif (expected := self._seen.pop(hash(which))) is not None:
            self._accept(which, line, expected)
        elif hash(receipt) in self._kept:
            if len(self._again) < RECEIPTS_WAITING_MAX:
                self._again[which] = line
        elif self._early_of[node_id] < RECEIPTS_PER_NODE_MAX and len(self._early) < RECEIPTS_WAITING_MAX:
            self._early[which] = EarlyReceipt(line, self._clock.now_s())
            self._early_of[node_id] += 1
        else:
            self.refused += 1

    def _accept(self, which: Which, line: ReceiptLine, expected: ExpectedReceipt) -> None:
        if len(self._ready) >= RECEIPTS_WAITING_MAX:
            self.refused += 1
            return
        self._taken[which] = line.receipt
        self._ready.append((line, expected))

    # in the background

    async def settle(self) -> None:
        """Check what has come since the last time, keep it, and tell the nodes. Raises StoreUnavailable: not lost."""
        async with self._settling:
            self._forget_old()
            if self._again:
                await self._repeat()
            await self._tell_untold()
            while self._checked or self._ready:
                await self._keep_some()
                await self._tell_untold()

    async def _keep_some(self) -> None:
        if not self._checked:
            await self._check_some()
        if self._checked:
            await self._books.save_receipts([checked.row for checked in self._checked])
            kept, self._checked = self._checked, []
            self._note_kept(kept)

    async def _repeat(self) -> None:
        again, self._again = list(self._again.values()), {}
        for line, digest in zip(again, await asyncio.to_thread(_digests_of, again), strict=True):
            self._untold.setdefault(NodeId(line.receipt.node), []).append(digest)

    def _forget_old(self) -> None:
        """Early ones whose job does not close: there is no such job, or it brought nothing."""
        now_s = self._clock.now_s()
        self._seen.forget_old(now_s)
        self._kept.forget_old(now_s)
        while self._early and now_s - next(iter(self._early.values())).came_at_s > RECEIPT_WAIT_S:
            (_, node_id), _ = self._early.popitem(last=False)
            self._early_of[node_id] -= 1
            self.refused += 1
        self._early_of = +self._early_of

    async def _check_some(self) -> None:
        """In a thread: checking a signature takes as long as a match."""
        batch = self._ready[:BATCH_MAX]
        found = await asyncio.to_thread(_checked, batch)
        del self._ready[: len(batch)]
        for (line, _), checked in zip(batch, found, strict=True):
            if checked is None:
                self._taken.pop((MatchId(line.receipt.job), NodeId(line.receipt.node)), None)
                self._refuse(line.receipt)
            else:
                self._checked.append(checked)

    def _note_kept(self, kept: Iterable[CheckedReceipt]) -> None:
        now_s = self._clock.now_s()
        for each in kept:
            row = each.row
            self._taken.pop((row.job_id, row.node_id), None)
            self._kept.put(hash(each.receipt), None, now_s=now_s)
            self._untold.setdefault(row.node_id, []).append(each.digest)

    async def _tell_untold(self) -> None:
        """A few signatures at a time: those of hundreds of nodes would hold up every stream for 20 ms."""
        while self._untold:
            for node_id in list(self._untold)[:SIGNED_AT_ONCE]:
                self._tell(node_id, self._untold.pop(node_id))
            await asyncio.sleep(0)

    def _tell(self, node_id: NodeId, digests: Sequence[bytes]) -> None:
        for at in range(0, len(digests), BATCH_MAX):
            self._send(node_id, self._countersigned(node_id, digests[at : at + BATCH_MAX]))

    def _refuse(self, receipt: Receipt) -> None:
        self.refused += 1
        _log.warning("receipt_refused", node=receipt.node, job=receipt.job)

    def _countersigned(self, node_id: NodeId, digests: Sequence[bytes]) -> Countersignature:
        signature = self._key.sign(countersign_digest(node_id, digests))
        return Countersignature(
            node=node_id,
            digests=[digest.hex() for digest in digests],
            gateway=self._key.address,
            signature=signature.hex(),
        )


def _digests_of(lines: Iterable[ReceiptLine]) -> list[bytes]:
    """Those of a sheet are computed once, for all of its lines."""
    sheets: dict[int, list[bytes]] = {}
    found = []
    for line in lines:
        digests = sheets.get(id(line.signed))
        if digests is None:
            digests = sheets[id(line.signed)] = line.signed.digests()
        found.append(digests[line.at])
    return found


def _checked(lines: Iterable[tuple[ReceiptLine, ExpectedReceipt]]) -> list[CheckedReceipt | None]:
    """None for those that are not signed by the node that they name. A sheet is checked once, for all of its lines."""
    sheets: dict[int, list[bytes] | None] = {}
    found: list[CheckedReceipt | None] = []
    for line, expected in lines:
        key = id(line.signed)
        if key not in sheets:
            sheets[key] = _digests_if_signed(line.signed, line.receipt.node)
        digests = sheets[key]
        found.append(_checked_line(line, expected, digests) if digests is not None else None)
    return found


def _digests_if_signed(signed: SignedReceipts, node: str) -> list[bytes] | None:
    """A sheet that names several nodes is signed by one: the lines of the others have never got here."""
    digests = signed.digests()
    return digests if signed.is_signed_by(node, digests) else None


def _checked_line(line: ReceiptLine, expected: ExpectedReceipt, digests: Sequence[bytes]) -> CheckedReceipt:
    signed, at = line.signed, line.at
    receipt = signed.receipts[at]
    disputed = not expected.was_cut and disagrees(receipt.completion_tokens, expected.tokens)
    row = ReceiptRow(
        job_id=MatchId(receipt.job),
        node_id=NodeId(receipt.node),
        unix_s=expected.opened_unix_s,
        prompt_tokens=receipt.prompt_tokens,
        completion_tokens=receipt.completion_tokens,
        seen_tokens=expected.tokens,
        disputed=disputed,
        signature=bytes.fromhex(signed.signature),
        proof=msgspec.json.encode(signed.proof(digests, at)) if disputed else None,
    )
    return CheckedReceipt(row, receipt, digests[at])
