"""The transactional outbox: each enqueued call becomes one transaction on the chain, whatever crashes in between.

1 `decided`: a row under a business id, its idempotency key, written together with what caused it.
2 `signed`: the row has a nonce and its signed bytes are stored, in one database transaction. From here on only these
  bytes, or the same with a higher fee, can be sent. A nonce is mined once, so sending them again is harmless.
3 `sent`: a node accepted them. If the node drops them, they are sent again.
4 `mined`: they are in a block. If a reorg removes the block, it is step 3 again.
5 `final` or `reverted`: the index is `depth` blocks past that block, and a local chain has saved it. A deeper reorg
  takes the row back to step 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from sparewatt.chain.client import ChainClient
from sparewatt.chain.rules import (
    OutboxAction,
    TransactionStatus,
    bumped_fees,
    first_fees,
    is_unmined,
    may_decide_refusal,
    missing_nonces,
    next_outbox_action,
    waiting_s,
)
from sparewatt.chain.senders import STUCK_S
from sparewatt.chain.signer import TransactionSigner
from sparewatt.core.errors import ChainRefused, ChainReverted, InvalidField
from sparewatt.core.limits import KIB
from sparewatt.core.log import Logger
from sparewatt.evm.model import BlockHeader, ContractCall, GasFees, TransactionReceipt
from sparewatt.evm.transactions import signed_gas_limit
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.store.chain import ChainStore, OutboxRow, OutboxState

_log = Logger("sparewatt.chain")
CALL_BYTES_MAX = 128 * KIB
"""What nodes accept as one transaction."""
IN_FLIGHT_MAX = 64
"""Transactions of one key at once: nodes keep about as many of one sender in their pool."""
SIGNED_PER_STEP = 16
"""Rows that get a nonce in one step; each needs a few requests to the chain."""
CAP_WEI = 500 * 10**9
"""The most that a transaction may pay per gas, unless the operator says otherwise: 500 gwei, a rare day on mainnet."""
TRANSFER_GAS = 21_000
TRIES_MAX = 5
"""How often a call that would revert is tried before the row ends as refused."""
Checkpoint = Callable[[str], None]
"""Called between any two steps that a crash could separate; tests crash there."""


async def enqueue(store: ChainStore, call: ContractCall, *, business_id: str, sender: str) -> None:
    """Have `sender` send `call` once. The same again changes nothing; another call under this id is refused."""
    if len(call.data) > CALL_BYTES_MAX:
        raise InvalidField(f"A transaction carries at most {CALL_BYTES_MAX} bytes.")
    values = (sender, call.to, call.data)
    await store.enqueue(business_id, *values, gas_limit=call.gas_limit)
    row = await store.find(business_id)
    if row is not None and (row.sender, row.recipient, row.data) != values:
        raise InvalidField(f"{business_id[:100]!r} was decided before, as another transaction.")


@dataclass(slots=True)
class OutboxSender:
    """Advances the rows of its keys. Several senders may run at once: each step is safe to repeat."""

    client: ChainClient
    store: ChainStore
    signer: TransactionSigner
    chain_id: int
    depth: int
    checkpoint: Checkpoint = lambda _: None
    cap_wei: int = CAP_WEI
    stuck_s: float = STUCK_S
    """A sender whose transaction has waited this long for a block gets no further nonce."""
    _warned: set[int] = field(default_factory=set, init=False)
    _read_at: dict[str, bytes] = field(default_factory=dict, init=False)
    """By sender, the head at which the status of its mined rows was read: without a new block it is the same."""

    async def step(self) -> bool:
        """One round for every key with work. True while a row is in flight."""
        busy = await self.store.list_open_senders(self.signer.addresses)
        ended = await asyncio.gather(*(self._advance_or_postpone(sender) for sender in busy), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error
        await self.store.finalize(depth=self.depth)
        self.checkpoint("finished")
        return bool(busy)

    async def _advance_or_postpone(self, sender: str) -> None:
        """All keys at once: the nonces of one are no matter to another."""
        try:
            await self._advance_sender(sender)
        except (ChainRefused, ChainReverted) as error:  # of this sender only: the others go on
            _log.warning("sender_postponed", sender=sender, why=error.code)

    async def _advance_sender(self, sender: str) -> None:
        rows = await self.store.list_in_flight(sender, limit=IN_FLIGHT_MAX)
        nonce, head = await self.client.next_nonce(sender), await self.client.head()
        is_new = self._read_at.get(sender) != head.hash
        unread = [row for row in rows if is_new or is_unmined(row)]
        statuses = await asyncio.gather(*(self._read_status(row, nonce=nonce, head=head) for row in unread))
        for row, status in zip(unread, statuses, strict=True):
            action = next_outbox_action(row, status, depth=self.depth, cap_wei=self.cap_wei)
            await self._apply(action, row, status)
        self._read_at[sender] = head.hash
        if waiting_s(rows) > self.stuck_s:
            await self._fill_gaps(sender, missing_nonces(nonce, rows), head)
            return
        room = min(SIGNED_PER_STEP, IN_FLIGHT_MAX - len(rows))
        decided = await self.store.list_decided(sender, limit=room)
        if decided:
            await self._sign_decided(decided, nonce_min=nonce, fees=await self._first_fees(head))

    async def _sign_decided(self, decided: Sequence[OutboxRow], *, nonce_min: int, fees: GasFees | None) -> None:
        """A call of a request gets its nonce after those before it, or the chain would run them in another order."""
        if fees is None:
            self._warn_once(decided[0], "gas_costs_too_much")
            return
        waiting: set[str | None] = set()
        for row in decided:
            if row.request_id not in waiting and not await self._sign_and_send(row, nonce_min=nonce_min, fees=fees):
                waiting |= {row.request_id} - {None}

    async def _fill_gaps(self, sender: str, nonces: Sequence[int], head: BlockHeader) -> None:
        """Without a transaction under each missing nonce the later ones are never mined: send one that does nothing."""
        fees = await self._first_fees(head) if nonces else None
        if fees is None:
            return
        for nonce in nonces:
            call = ContractCall(sender, b"", TRANSFER_GAS)
            signed = self.signer.sign(
                call, sender=sender, nonce=nonce, chain_id=self.chain_id, gas_limit=TRANSFER_GAS, fees=fees
            )
            business_id = f"gap:{sender}:{nonce}"
            if await self.store.fill_nonce(business_id, sender, nonce=nonce, gas_limit=TRANSFER_GAS, signed=signed):
                _log.warning("nonce_gap_filled", sender=sender, nonce=nonce)
                await self.client.send(signed.raw)

    async def _read_status(self, row: OutboxRow, *, nonce: int, head: BlockHeader) -> TransactionStatus:
        receipt = await self._receipt(row)
        is_known = receipt is not None or await self.client.has_transaction(row.signed[-1].tx_hash)
        is_older_known = (
            not is_known and len(row.signed) > 1 and await self.client.has_transaction(row.signed[-2].tx_hash)
        )
        return TransactionStatus(nonce, head.number, head.base_fee_wei or 0, receipt, is_known, is_older_known)

    async def _receipt(self, row: OutboxRow) -> TransactionReceipt | None:
        """Of the version that was mined; most likely that is the newest."""
        for signed in reversed(row.signed):
            receipt = await self.client.receipt(signed.tx_hash)
            if receipt is not None:
                return receipt
        return None

    async def _apply(self, action: OutboxAction, row: OutboxRow, status: TransactionStatus) -> None:
        match action:
            case OutboxAction.WAIT:
                pass
            case OutboxAction.SEND:
                await self._send(row, row.signed[-1])
            case OutboxAction.NOTE_SENT:
                await self.store.note_sent(row)
            case OutboxAction.NOTE_MINED:
                await self._note_mined(row, status.receipt)
            case OutboxAction.RAISE_FEE:
                await self._raise_fee(row)
            case OutboxAction.NOTE_LOST:
                _log.warning("nonce_taken_by_another", sender=row.sender, nonce=row.nonce)
                await self.store.note_lost(row, block_number=status.head_number)
            case OutboxAction.SIGN_ANEW:
                fees = await self._first_fees(await self.client.head())
                if fees is not None:
                    await self._sign_and_send(row, nonce_min=status.sender_nonce, fees=fees)
            case _ as never:
                assert_never(never)

    async def _sign_and_send(self, row: OutboxRow, *, nonce_min: int, fees: GasFees) -> bool:
        """False if the call has no nonce yet: it would revert so far, or another process signs it."""
        try:
            gas_limit = await self.client.gas_limit(_call(row), sender=row.sender)
        except (ChainReverted, ChainRefused) as error:
            reason = error.reason if isinstance(error, ChainReverted) else error.message
            in_flight = await self.store.list_in_flight(row.sender, limit=IN_FLIGHT_MAX)
            if row.state is OutboxState.DECIDED and may_decide_refusal(row, in_flight):
                await self.store.note_refused(row, reason, tries_max=TRIES_MAX)
            return False

        def sign(nonce: int) -> SignedTransaction:
            self.checkpoint("nonce taken")
            return self._sign(row, nonce=nonce, gas_limit=gas_limit, fees=fees)

        signed = await self.store.sign(row, nonce_min=nonce_min, gas_limit=gas_limit, sign=sign)
        self.checkpoint("signed")
        if signed is not None:
            await self._send(row, signed)
        return signed is not None

    async def _first_fees(self, head: BlockHeader) -> GasFees | None:
        """None while gas costs more than is allowed."""
        return first_fees(await self.client.fees(), base_fee_wei=head.base_fee_wei or 0, cap_wei=self.cap_wei)

    async def _send(self, row: OutboxRow, signed: SignedTransaction) -> None:
        if not await self.client.send(signed.raw):
            self._warn_once(row, "transaction_not_taken")
            return  # the next step reads from the chain why
        self.checkpoint("sent")
        await self.store.note_sent(row)
        self.checkpoint("noted as sent")

    def _warn_once(self, row: OutboxRow, what: str) -> None:
        """Per row, though it is tried again in every step."""
        if row.id not in self._warned:
            self._warned = {row.id} if len(self._warned) >= IN_FLIGHT_MAX else self._warned | {row.id}
            _log.warning(what, sender=row.sender, row=row.id)

    async def _raise_fee(self, row: OutboxRow) -> None:
        """Replace a pending transaction by one with the same nonce and gas limit, and a higher fee.

        The gas limit is never estimated again: a call that would revert by now has no estimate. It still needs its
        replacement, since it blocks every later nonce until it is mined, even if it is mined as reverted.
        """
        if row.nonce is None:
            raise ValueError("a row in flight has a nonce")
        last = row.signed[-1]
        fees = bumped_fees(row, await self.client.fees(), cap_wei=self.cap_wei)
        signed = self._sign(row, nonce=row.nonce, gas_limit=signed_gas_limit(last.raw), fees=fees)
        if not await self.store.sign_again(row, signed):
            return  # another process raised it: the next step goes by what is stored
        _log.info("transaction_fee_raised", sender=row.sender, nonce=row.nonce, row=row.id, max_wei=fees.max_wei)
        self.checkpoint("fee raised")
        await self._send(row, signed)

    async def _note_mined(self, row: OutboxRow, receipt: TransactionReceipt | None) -> None:
        if receipt is None:
            raise ValueError("a mined transaction has a receipt")
        reason = None if receipt.succeeded else await self._revert_reason(row, receipt)
        block = (receipt.block_number, receipt.block_hash)
        await self.store.note_mined(
            row, block=block, tx_hash=receipt.tx_hash, succeeded=receipt.succeeded, reason=reason
        )
        self.checkpoint("noted as mined")

    async def _revert_reason(self, row: OutboxRow, receipt: TransactionReceipt) -> str:
        """A receipt has no reason: the call is run again at its block."""
        try:
            await self.client.call(_call(row), sender=row.sender, at_block=receipt.block_number)
        except ChainReverted as error:
            return error.reason
        except ChainRefused:
            pass
        return "no reason given; it may have run out of gas"

    def _sign(self, row: OutboxRow, *, nonce: int, gas_limit: int, fees: GasFees) -> SignedTransaction:
        return self.signer.sign(
            _call(row), sender=row.sender, nonce=nonce, chain_id=self.chain_id, gas_limit=gas_limit, fees=fees
        )


def _call(row: OutboxRow) -> ContractCall:
    return ContractCall(row.recipient, row.data, row.gas_limit)
