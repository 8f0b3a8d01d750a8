"""Rules on the uptime of every lease that has ended, once, and has the operator's fund pay what is due.

Read at money's depth, so that no reorganisation takes back what was credited. Every gateway runs it: a ruling and a
payment each happen once, by their ids in Postgres.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId
from sparewatt.core.log import Logger
from sparewatt.core.money import NANO_PER_USD, format_usd
from sparewatt.ledger.uptime_fund import UptimeFund, UptimeFundStatus
from sparewatt.market.chain_records import LeaseRecord, MarketState
from sparewatt.market.chain_view import ChainView
from sparewatt.market.uptime_credit import UptimeRuling, rule_on_uptime
from sparewatt.store.uptime_credits import LeaseRenter, UptimeCreditRow, UptimeCreditStore

_log = Logger("sparewatt.leasing")
LOOK_BACK_S = 7 * 86_400
"""A lease that ended longer ago is not looked at any more: so long all gateways of a network may be away."""
ENDED_LOOKED_AT_MAX = 100_000
RULED_PER_READ = 200
UNKNOWN_S = 600
"""So long after its end the renter of a lease is looked for."""
NANO_PER_UUSD = NANO_PER_USD // 1_000_000


class MarketSource(Protocol):
    """Implemented by MarketIndex."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def built(self) -> ChainView | None: ...


@dataclass(slots=True, kw_only=True)
class UptimeCredits:
    market: MarketSource
    store: UptimeCreditStore
    fund: UptimeFund
    clock: Clock
    _newest: str | None = field(default=None, init=False)
    """The last end that was looked at: those before it need no further look by this process."""
    _unknown: list[str] = field(default_factory=list, init=False)
    """Low ones whose renter was not found: the chain's process may note an order's id a moment later."""

    async def run(self) -> None:
        """Nothing on a network without a daily limit: it promises no credit."""
        view = self.market.built
        if not self.fund.daily or view is None or not self.market.is_complete:
            return
        await self._rule_on_ended(view.final)
        paid = await self.fund.pay_due()
        if paid:
            _log.info("uptime_credited", usd=format_usd(paid))

    async def told_of(self, order_ids: Sequence[str]) -> tuple[Mapping[str, UptimeCreditRow], UptimeFundStatus | None]:
        """The rulings on these; and, if one waits to be paid, how the fund stands."""
        rows = await self.store.find(order_ids) if order_ids else {}
        waits = any(row.due_nano and row.paid_nano is None for row in rows.values())
        return rows, await self.fund.status() if waits else None

    async def _rule_on_ended(self, state: MarketState) -> None:
        """What fails is done again in the next round: a ruling that is there stays as it is."""
        newest = next(reversed(state.ended_orders), None)
        low, known = [*self._unknown, *self._ended_low(state)], set[str]()
        for start in range(0, len(low), RULED_PER_READ):
            known |= await self._rule(state, low[start : start + RULED_PER_READ])
        since = self.clock.unix_s() - UNKNOWN_S
        self._unknown = [each for each in low if each not in known and _ended_at(state, each) > since]
        self._newest = newest

    def _ended_low(self, state: MarketState) -> Iterator[str]:
        """Ends since the last round, the newest first, of leases that were down for too long."""
        oldest = self.clock.unix_s() - LOOK_BACK_S
        for order_id in islice(reversed(state.ended_orders), ENDED_LOOKED_AT_MAX):
            if order_id == self._newest:
                return
            lease = state.leases.get(order_id)
            if lease is None or lease.closed_at is None or not lease.uptime.is_below_goal:
                continue
            if lease.closed_at >= oldest:
                yield order_id

    async def _rule(self, state: MarketState, order_ids: Sequence[str]) -> set[str]:
        """Returns those whose renter has an account here; a stranger has none to credit."""
        renters = await self.store.renters_of(order_ids)
        for renter in renters:
            lease, stream = state.leases[renter.order_id], state.streams[renter.order_id]
            owners = await self._owners_of(state, lease)
            ruling = rule_on_uptime(lease.uptime, stream, is_own_provider=renter.account_id in owners)
            if ruling is not None:
                await self.store.insert(_row(renter, lease, ruling))
        return {renter.order_id for renter in renters}

    async def _owners_of(self, state: MarketState, lease: LeaseRecord) -> set[AccountId]:
        """Of all providers that ever had it, by their addresses and by their nodes' keys."""
        providers = sorted(lease.held_by)
        records = [state.providers[provider] for provider in providers if provider in state.providers]
        node_keys = sorted({change.node_key for record in records for change in record.node_keys})
        return await self.store.accounts_behind(providers, node_keys=node_keys)


def _ended_at(state: MarketState, order_id: str) -> int:
    lease = state.leases.get(order_id)
    return 0 if lease is None else lease.closed_at or 0


def _row(renter: LeaseRenter, lease: LeaseRecord, ruling: UptimeRuling) -> UptimeCreditRow:
    return UptimeCreditRow(
        order_id=renter.order_id,
        lease_id=renter.lease_id,
        account_id=renter.account_id,
        ppm=lease.uptime.ppm or 0,
        due_nano=ruling.uusd * NANO_PER_UUSD,
        reason=None if ruling.reason is None else ruling.reason.value,
        ended_unix_s=float(lease.closed_at or 0),
    )
