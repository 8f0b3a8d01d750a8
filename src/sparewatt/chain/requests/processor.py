"""Turns the chain requests of accounts into transactions, once, and finishes them with these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from sparewatt.chain.model import hex_of
from sparewatt.chain.requests.handler import CallBatch, RequestHandler
from sparewatt.core.errors import ChainReverted, InvalidField
from sparewatt.core.log import Logger
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
    sender: str
    """Relays the transactions and pays the gas."""

    async def step(self) -> None:
        """Runs after final events were delivered, so that the ledger has what a finished request did."""
        for row in await self.requests.list_decided(limit=REQUESTS_PER_STEP):
            await self._check_outcome(row)
        for row in await self.requests.list_asked(limit=REQUESTS_PER_STEP):
            await self._send_step(row)

    async def _check_outcome(self, row: ChainRequestRow) -> None:
        sent = await self.requests.list_sent(row.id)
        match outcome_of(sent):
            case StepOutcome.OPEN:
                pass
            case StepOutcome.GONE:
                await self._fail(row, "the network changed to another chain meanwhile.")
            case StepOutcome.FAILED:
                await self._fail(row, f"the contract says {sent[-1].reason or 'no'}.")
            case StepOutcome.DONE if row.more_steps:
                await self.requests.begin_next_step(row)
            case StepOutcome.DONE:
                await self._finish(row, sent)
            case _ as never:
                assert_never(never)

    async def _finish(self, row: ChainRequestRow, sent: Sequence[SentCall]) -> None:
        """With what its events say. The index has them: it is past the block of a final transaction."""
        handler, hashes = self.handlers.get(row.kind), [each.tx_hash for each in sent if each.tx_hash is not None]
        if handler is not None and handler.result_events:
            events = await self.store.events_of(hashes, names=handler.result_events)
            await self.requests.note_result(row.id, handler.read_result(row, events))
        tx = hex_of(hashes[-1]) if hashes else None
        await self.requests.finish(row.id, ChainRequestState.DONE, tx=tx)

    async def _send_step(self, row: ChainRequestRow) -> None:
        try:
            batch = await self._handler(row).build_calls(row)
        except (InvalidField, ChainReverted) as error:
            await self._fail(row, error.message)
            return
        await self._apply(row, batch)

    def _handler(self, row: ChainRequestRow) -> RequestHandler:
        handler = self.handlers.get(row.kind)
        if handler is None or row.step >= STEPS_MAX:
            raise InvalidField(f"This network's chain cannot do {row.kind.value!r}.")
        if row.params is None:
            raise InvalidField("It was asked by a process of another release. Ask again.")
        return handler

    async def _apply(self, row: ChainRequestRow, batch: CallBatch) -> None:
        if batch.wait_s > 0:
            await self.requests.postpone(row.id, seconds=batch.wait_s)
        elif batch.calls:
            calls = [
                OutboxCall(_business_id(row, name), call.to, call.data, call.gas_limit) for name, call in batch.calls
            ]
            await self.requests.enqueue_calls(row, sender=self.sender, calls=calls, more_steps=batch.more_steps)
        elif batch.more_steps:
            await self.requests.begin_next_step(row)
        else:
            await self._finish(row, await self.requests.list_sent(row.id))

    async def _fail(self, row: ChainRequestRow, reason: str) -> None:
        _log.warning("chain_request_failed", request=row.id, why=reason)
        await self.requests.finish(row.id, ChainRequestState.FAILED, reason=reason)


def _business_id(row: ChainRequestRow, name: str) -> str:
    return f"{row.id}:{row.step}:{name}" if row.step else f"{row.id}:{name}"
