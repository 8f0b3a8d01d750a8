"""From a decision to one transaction: never lost, never twice, whatever crashes in between.

1 `decided`: a row with a business id, written together with what decided it.
2 `signed`: it has a nonce, and the signed bytes are stored, in one database transaction. From here on only these bytes
  (or the same with a higher fee) can be sent, and a nonce is mined once: sending again is harmless.
3 `sent`: a node took them. Forgotten by the node, they are sent again.
4 `mined`: in a block. The block may still vanish; then it is step 3 again.
5 `final` or `reverted`: the index is `depth` blocks past it. A chain that forgets even that takes it back to step 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

from sparewatt.chain.client import ChainClient
from sparewatt.chain.model import BlockHeader, ContractCall, GasFees, TransactionReceipt
from sparewatt.chain.rules import OutboxAction, TransactionStatus, bumped_fees, next_outbox_action
from sparewatt.chain.signer import TransactionSigner, signed_gas_limit
from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable, InvalidField
from sparewatt.core.limits import OUTBOX_CALL_BYTES_MAX, OUTBOX_OPEN_MAX, OUTBOX_SIGNED_AT_ONCE, OUTBOX_TRIES_MAX
from sparewatt.core.log import Logger
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.store.chain import ChainStore, OutboxRow, OutboxState
from sparewatt.store.migrations import PgConnection

_log = Logger("sparewatt.chain")
POLL_S = 0.1
Checkpoint = Callable[[str], None]
"""Called between any two steps that a crash could separate; tests crash there."""


async def enqueue(
    store: ChainStore, call: ContractCall, *, business_id: str, sender: str, within: PgConnection | None = None
) -> None:
    """Have `sender` send `call` once. Deciding the same again changes nothing; another call by this id is refused."""
    if len(call.data) > OUTBOX_CALL_BYTES_MAX:
        raise InvalidField(f"A transaction carries at most {OUTBOX_CALL_BYTES_MAX} bytes.")
    await store.enqueue(
        business_id=business_id,
        sender=sender,
        recipient=call.to,
        data=call.data,
        gas_limit=call.gas_limit,
        within=within,
    )
    row = None if within is not None else await store.find(business_id)
    if row is not None and (row.sender, row.recipient, row.data) != (sender, call.to, call.data):
        raise InvalidField(f"{business_id[:100]!r} was decided before, as another transaction.")


async def wait_until_final(store: ChainStore, business_id: str, *, timeout_s: float, clock: Clock) -> OutboxRow:
    """Wait until a decision is final. Raises ChainReverted when the contract said no, else ChainUnavailable."""
    deadline_s = clock.now_s() + timeout_s
    while clock.now_s() < deadline_s:
        row = await store.find(business_id)
        match row.state if row else None:
            case OutboxState.FINAL if row:
                return row
            case OutboxState.REVERTED | OutboxState.REFUSED if row:
                raise ChainReverted(row.reason or "no reason given")
        await sleep_until(clock, clock.now_s() + POLL_S)
    raise ChainUnavailable(f"{business_id[:100]!r} is not final after {timeout_s:.0f} s. It goes on by itself.")


class OutboxSender:
    """Brings the rows of its keys forward, one round at a time. Several may run; each step is safe to repeat."""

    def __init__(
        self,
        client: ChainClient,
        store: ChainStore,
        keys: TransactionSigner,
        *,
        chain_id: int,
        depth: int,
        checkpoint: Checkpoint = lambda _: None,
    ) -> None:
        self._client = client
        self._store = store
        self._keys = keys
        self._chain_id = chain_id
        self._depth = depth
        self._checkpoint = checkpoint
        self._warned: set[int] = set()

    async def step(self) -> bool:
        """One round for every key. True while something is under way."""
        busy = [await self._advance_sender(sender) for sender in self._keys.addresses]
        await self._store.finalize(depth=self._depth)
        self._checkpoint("finished")
        return any(busy)

    async def _advance_sender(self, sender: str) -> bool:
        rows = await self._store.list_in_flight(sender, limit=OUTBOX_OPEN_MAX)
        decided = await self._store.list_decided(sender, limit=min(OUTBOX_SIGNED_AT_ONCE, OUTBOX_OPEN_MAX - len(rows)))
        if not rows and not decided:
            return False
        nonce, head = await self._client.next_nonce(sender), await self._client.head()
        for row, facts in await self._read_statuses(rows, nonce=nonce, head=head):
            await self._apply(next_outbox_action(row, facts, depth=self._depth), row, facts)
        for row in decided:
            await self._sign_and_send(row, nonce_min=nonce, is_alone=not rows)
        return True

    async def _read_statuses(
        self, rows: list[OutboxRow], *, nonce: int, head: BlockHeader
    ) -> list[tuple[OutboxRow, TransactionStatus]]:
        async def look(row: OutboxRow) -> tuple[OutboxRow, TransactionStatus]:
            receipt = await self._receipt(row)
            is_known = receipt is not None or await self._client.has_transaction(row.signed[-1].tx_hash)
            return row, TransactionStatus(nonce, head.number, head.base_fee_wei or 0, receipt, is_known)

        return await asyncio.gather(*(look(row) for row in rows))

    async def _receipt(self, row: OutboxRow) -> TransactionReceipt | None:
        """Of whichever form was mined; the newest is the likeliest."""
        for signed in reversed(row.signed):
            receipt = await self._client.receipt(signed.tx_hash)
            if receipt is not None:
                return receipt
        return None

    async def _apply(self, step: OutboxAction, row: OutboxRow, facts: TransactionStatus) -> None:
        match step:
            case OutboxAction.WAIT:
                pass
            case OutboxAction.SEND:
                await self._send(row, row.signed[-1])
            case OutboxAction.NOTE_SENT:
                await self._store.note_sent(row)
            case OutboxAction.NOTE_MINED:
                await self._note_mined(row, facts.receipt)
            case OutboxAction.RAISE_FEE:
                await self._raise_fee(row)
            case OutboxAction.NOTE_LOST:
                _log.warning("nonce_taken_by_another", sender=row.sender, nonce=row.nonce)
                await self._store.note_lost(row, block_number=facts.head_number)
            case OutboxAction.SIGN_ANEW:
                await self._sign_and_send(row, nonce_min=facts.sender_nonce, is_alone=False)
            case _ as never:
                assert_never(never)

    async def _sign_and_send(self, row: OutboxRow, *, nonce_min: int, is_alone: bool) -> None:
        """A contract's no counts only when nothing is under way that could change its mind."""
        try:
            gas_limit = await self._client.gas_limit(_call(row), sender=row.sender)
        except (ChainReverted, ChainRefused) as error:
            reason = error.reason if isinstance(error, ChainReverted) else error.message
            if is_alone:
                await self._store.note_refused(row, reason, tries_max=OUTBOX_TRIES_MAX)
            return
        fees = await self._client.fees()

        def sign(nonce: int) -> SignedTransaction:
            self._checkpoint("nonce taken")
            return self._signed(row, nonce=nonce, gas_limit=gas_limit, fees=fees)

        signed = await self._store.sign(row, nonce_min=nonce_min, gas_limit=gas_limit, sign=sign)
        self._checkpoint("signed")
        if signed is not None:
            await self._send(row, signed)

    async def _send(self, row: OutboxRow, signed: SignedTransaction) -> None:
        if not await self._client.send(signed.raw):
            self._warn_not_taken(row)
            return  # what it means is seen at the next look at the chain
        self._checkpoint("sent")
        await self._store.note_sent(row)
        self._checkpoint("noted as sent")

    def _warn_not_taken(self, row: OutboxRow) -> None:
        """Once per row, though it is tried again every round."""
        if row.id not in self._warned:
            self._warned = {row.id} if len(self._warned) >= OUTBOX_OPEN_MAX else self._warned | {row.id}
            _log.warning("transaction_not_taken", sender=row.sender, row=row.id)

    async def _raise_fee(self, row: OutboxRow) -> None:
        """Replace a pending transaction by one with the same nonce and gas limit, and a higher fee.

        The gas limit is never estimated again: a call that would revert by now has no estimate. It still needs its
        replacement, since it blocks every later nonce until it is mined, even if it is mined as reverted.
        """
        if row.nonce is None:
            raise ValueError("a row under way has a nonce")
        last = row.signed[-1]
        fees = bumped_fees(last, await self._client.fees())
        signed = self._signed(row, nonce=row.nonce, gas_limit=signed_gas_limit(last.raw), fees=fees)
        await self._store.sign_again(row, signed)
        _log.info("transaction_fee_raised", sender=row.sender, nonce=row.nonce, row=row.id, max_wei=fees.max_wei)
        self._checkpoint("fee raised")
        await self._send(row, signed)

    async def _note_mined(self, row: OutboxRow, receipt: TransactionReceipt | None) -> None:
        if receipt is None:
            raise ValueError("a mined transaction has a receipt")
        reason = None if receipt.succeeded else await self._why_reverted(row, receipt)
        block = (receipt.block_number, receipt.block_hash)
        await self._store.note_mined(
            row, block=block, tx_hash=receipt.tx_hash, succeeded=receipt.succeeded, reason=reason
        )
        self._checkpoint("noted as mined")

    async def _why_reverted(self, row: OutboxRow, receipt: TransactionReceipt) -> str:
        """Asked again at that block; receipts do not say."""
        try:
            await self._client.call(_call(row), sender=row.sender, at_block=receipt.block_number)
        except ChainReverted as error:
            return error.reason
        except ChainRefused:
            pass
        return "no reason given; it may have run out of gas"

    def _signed(self, row: OutboxRow, *, nonce: int, gas_limit: int, fees: GasFees) -> SignedTransaction:
        return self._keys.sign(
            _call(row), sender=row.sender, nonce=nonce, chain_id=self._chain_id, gas_limit=gas_limit, fees=fees
        )


def _call(row: OutboxRow) -> ContractCall:
    return ContractCall(row.recipient, row.data, row.gas_limit)
