"""Shows how an order's auction goes, or went: at any process of any gateway of the network, also after restarts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import InvalidField, NotFound
from sparewatt.core.ids import AccountId
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay.evidence import MatchEvidence
from sparewatt.leasing.relay.match_reply import match_reply
from sparewatt.market.chain_records import MarketState, OrderRecord
from sparewatt.protocol.api.lease_match import LeaseMatch, LeaseMatchRecord
from sparewatt.store.lease_matches import LeaseMatchRow
from sparewatt.store.lease_orders import LeaseOrderRow

WAITS_MAX = 256
"""Callers that wait for a change at once; one more is answered at once."""
WAITS_PER_ACCOUNT_MAX = 16
"""So that one account leaves no other without a wait."""
LOOK_S = 0.2
"""Between two looks at the database for a caller that waits."""
_STATES = 8
"""More than an order has: the version counts the stored one, then the order's state on the chain."""
_PAST_STATE = _STATES - 1
_ORDER_ID = re.compile(r"0x[0-9a-f]{64}")


class MatchSource(Protocol):
    """Implemented by LeaseMatchStore."""

    async def find(self, order_id: str, attempt: int) -> LeaseMatchRow | None: ...

    async def find_version(self, order_id: str, attempt: int) -> int: ...

    async def find_record(self, order_id: str, attempt: int) -> str | None: ...

    async def list_attempts(self, order_id: str) -> list[int]: ...


class LeaseFinder(Protocol):
    """Implemented by LeaseOrderService."""

    async def find(self, account: AccountId, wanted: str) -> LeaseOrderRow: ...


@dataclass(slots=True, kw_only=True)
class MatchService:
    index: MarketIndex
    matches: MatchSource
    leases: Callable[[], LeaseFinder]
    clock: Clock
    _waiting: Counter[AccountId] = field(default_factory=Counter, init=False)

    async def show(
        self, account: AccountId, wanted: str, *, attempt: int | None = None, have: int = 0, wait_ms: int = 0
    ) -> LeaseMatch:
        """By the order's id, which anyone may ask for, or by an id or a name of the account's own.

        Raises NotFound, InvalidField, and what `MarketIndex.view` raises.
        """
        order = await self._find(account, wanted)
        number = self._attempt(order, attempt)
        if wait_ms and self._may_wait(account):
            await self._wait(account, order.order_id, number, have=have, wait_s=wait_ms / 1_000)
        return await self._reply(order.order_id, number)

    async def record(self, account: AccountId, wanted: str, *, attempt: int | None = None) -> LeaseMatchRecord:
        """One validator's whole record of an attempt. Raises NotFound."""
        order = await self._find(account, wanted)
        number = self._attempt(order, attempt)
        row = await self.matches.find(order.order_id, number)
        text = await self.matches.find_record(order.order_id, number) if row is not None else None
        if row is None or row.record_from is None or text is None:
            raise NotFound(
                "This gateway has no record of that match. Ask a validator: 'sparewatt validator replay ORDER --from "
                "URL', with a URL of 'sparewatt market validators'."
            )
        return LeaseMatchRecord(
            order_id=order.order_id, attempt=number, validator=row.record_from, record=msgspec.Raw(text.encode())
        )

    async def _find(self, account: AccountId, wanted: str) -> OrderRecord:
        state, order_id = self._state(), wanted.lower()
        if not _ORDER_ID.fullmatch(order_id):
            row = await self.leases().find(account, wanted)
            if row.order_id is None:
                raise NotFound("This order is not on the chain yet. Try again in a moment.")
            order_id = row.order_id
        order = state.orders.get(order_id)
        if order is None:
            raise NotFound(f"There is no order {wanted[:70]!r}. 'sparewatt market orders --all' lists them.")
        return order

    def _attempt(self, order: OrderRecord, attempt: int | None) -> int:
        if attempt is not None and not 0 <= attempt <= order.attempt:
            raise InvalidField(f"This order's attempts are 0 to {order.attempt}.", param="attempt")
        return order.attempt if attempt is None else attempt

    def _state(self) -> MarketState:
        return self.index.view().latest

    def _may_wait(self, account: AccountId) -> bool:
        return self._waiting.total() < WAITS_MAX and self._waiting[account] < WAITS_PER_ACCOUNT_MAX

    async def _wait(self, account: AccountId, order_id: str, attempt: int, *, have: int, wait_s: float) -> None:
        """Until there is a newer version, at most so long."""
        self._waiting[account] += 1
        try:
            until_s = self.clock.now_s() + wait_s
            while self.clock.now_s() < until_s:
                stored = await self.matches.find_version(order_id, attempt)
                if self._version(order_id, attempt, stored) > have:
                    return
                await sleep_until(self.clock, self.clock.now_s() + LOOK_S)
        finally:
            self._waiting[account] -= 1
            self._waiting = +self._waiting

    def _version(self, order_id: str, attempt: int, stored: int) -> int:
        order = self._state().orders.get(order_id)
        is_current = order is not None and order.attempt == attempt
        return _STATES * stored + (order.state.value if is_current and order is not None else _PAST_STATE)

    async def _reply(self, order_id: str, attempt: int) -> LeaseMatch:
        row = await self.matches.find(order_id, attempt)
        attempts = await self.matches.list_attempts(order_id)
        state = self._state()
        return match_reply(
            state,
            state.orders[order_id],
            msgspec.json.decode(row.evidence, type=MatchEvidence) if row is not None else None,
            attempt=attempt,
            attempts=attempts,
            version=self._version(order_id, attempt, row.version if row is not None else 0),
            has_record=row is not None and row.record_from is not None,
            attempt_s=self.index.attempt_s,
            unix_s=self.clock.unix_s(),
        )
