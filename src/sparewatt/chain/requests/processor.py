"""Turns the chain requests of accounts into transactions, once, and finishes them with these."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from sparewatt.chain.requests.handler import CallBatch, RequestHandler
from sparewatt.chain.senders import SenderPool, choose_sender, with_calls
from sparewatt.core.errors import ChainReverted, InvalidField
from sparewatt.core.log import Logger
from sparewatt.evm.model import hex_of
from sparewatt.store.chain import ChainStore, OutboxState
from sparewatt.store.chain_requests import (
    ChainRequestRow,
    ChainRequestState,
    ChainRequestStore,
    OutboxCall,
    SentCall,
)
from sparewatt.store.request_params import ChainRequestKind

_log = Logger("sparewatt.chain")
REQUESTS_PER_STEP = 16
"""Requests that become transactions in one step; each needs a few requests to the chain's node."""
CHECKED_PER_STEP = 64
"""Requests whose outcome is looked up in one step; those that can end come first."""
STEPS_MAX = 8
"""Of one request; a handler that wants more has a mistake."""


class StepOutcome(Enum):
    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    GONE = "gone"
    """It has no transactions: the network left the chain for which they were made."""


def outcome_of(sent: Sequence[SentCall]) -> StepOutcome:
    """By the last transaction, which succeeds only if those that it needs did."""
    if not sent:
        return StepOutcome.GONE
    match sent[-1].state:
        case OutboxState.FINAL:
            return StepOutcome.DONE
        case OutboxState.REVERTED | OutboxState.REFUSED:
            return StepOutcome.FAILED
        case _:
            return StepOutcome.OPEN


@dataclass(frozen=True, slots=True)
class ChainRequestProcessor:
    store: ChainStore
    requests: ChainRequestStore
    handlers: Mapping[ChainRequestKind, RequestHandler]
    senders: SenderPool
    """The keys that relay the transactions and pay the gas."""

    async def step(self) -> bool:
        """True if something was decided. Runs after final events were delivered: the ledger has what a request did."""
        await self.senders.relieve()
        for row in await self.requests.list_decided(limit=CHECKED_PER_STEP):
            await self._check_outcome(row)
        asked = await self.requests.list_asked(limit=REQUESTS_PER_STEP)
        if not asked:
            return False
        loads, errors = await self.senders.loads(), list[BaseException]()
        # At once: they are of different addresses, and each waits for the chain's node several times.
        built = await asyncio.gather(*(self._build(row) for row in asked), return_exceptions=True)
        for row, batch in zip(asked, built, strict=True):
            if isinstance(batch, BaseException):
                errors.append(batch)
            elif batch is not None:
                sender = choose_sender(loads, stuck_s=self.senders.stuck_s)
                await self._apply(row, batch, sender)
                loads = with_calls(loads, sender, len(batch.calls))
        if errors:
            raise errors[0]  # of the chain or the database: these are tried again, and held up no others
        return True

    async def _check_outcome(self, row: ChainRequestRow) -> None:
        sent = await self.requests.list_sent(row.id)
        match outcome_of(sent):
            case StepOutcome.OPEN:
                await self._note_first_sight(row, sent)
            case StepOutcome.GONE:
                await self._fail(row, "the network changed to another chain meanwhile.")
            case StepOutcome.FAILED:
                await self._fail(row, f"the contract says {sent[-1].reason or 'no'}.")
            case StepOutcome.DONE if row.more_steps:
                await self._note_result(row, sent)
                await self.requests.begin_next_step(row)
            case StepOutcome.DONE:
                await self._finish(row, sent)
            case _ as never:
                assert_never(never)

    async def _finish(self, row: ChainRequestRow, sent: Sequence[SentCall]) -> None:
        """With what its events say. The index has them: it is past the block of a final transaction."""
        await self._note_result(row, sent)
        tx = hex_of(sent[-1].tx_hash) if sent and sent[-1].tx_hash is not None else None
        await self.requests.finish(row.id, ChainRequestState.DONE, tx=tx)

    async def _note_first_sight(self, row: ChainRequestRow, sent: Sequence[SentCall]) -> None:
        """What is found by looking (an order's id) need not be final to be of use."""
        if sent[-1].state is OutboxState.MINED:
            await self._note_result(row, sent)

    async def _note_result(self, row: ChainRequestRow, sent: Sequence[SentCall]) -> None:
        handler = self.handlers.get(row.kind)
        if handler is None or not handler.result_events:
            return
        hashes = [each.tx_hash for each in sent if each.tx_hash is not None]
        result = handler.read_result(row, await self.store.events_of(hashes, names=handler.result_events))
        if result and result != row.result:
            await self.requests.note_result(row.id, result)

    async def _build(self, row: ChainRequestRow) -> CallBatch | None:
        """None for a request that failed."""
        try:
            return await self._handler(row).build_calls(row)
        except (InvalidField, ChainReverted) as error:
            await self._fail(row, error.message)
            return None

    def _handler(self, row: ChainRequestRow) -> RequestHandler:
        handler = self.handlers.get(row.kind)
        if handler is None or row.step >= STEPS_MAX:
            raise InvalidField(f"This network's chain cannot do {row.kind.value!r}.")
        if row.params is None:
            raise InvalidField("It was asked by a process of another release. Ask again.")
        return handler

    async def _apply(self, row: ChainRequestRow, batch: CallBatch, sender: str) -> None:
        if batch.wait_s > 0:
            if batch.result and batch.result != row.result:
                await self.requests.note_result(row.id, batch.result)
            await self.requests.postpone(row.id, seconds=batch.wait_s)
        elif batch.calls:
            calls = [
                OutboxCall(_business_id(row, name), call.to, call.data, call.gas_limit) for name, call in batch.calls
            ]
            await self.requests.enqueue_calls(row, sender=sender, calls=calls, more_steps=batch.more_steps)
        elif batch.more_steps:
            await self.requests.begin_next_step(row)
        else:
            await self._finish(row, await self.requests.list_sent(row.id))

    async def _fail(self, row: ChainRequestRow, reason: str) -> None:
        _log.warning("chain_request_failed", request=row.id, why=reason)
        await self.requests.finish(row.id, ChainRequestState.FAILED, reason=reason)


def _business_id(row: ChainRequestRow, name: str) -> str:
    return f"{row.id}:{row.step}:{name}" if row.step else f"{row.id}:{name}"
