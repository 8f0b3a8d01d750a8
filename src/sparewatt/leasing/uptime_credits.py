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
RULED_PER_ROUND = 200
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
    _seen: set[str] = field(default_factory=set, init=False)
    """Ended leases that need no further look by this process."""

    async def run(self) -> None:
        """Nothing on a network without a daily limit: it promises no credit."""
        view = self.market.built
        if not self.fund.daily or view is None or not self.market.is_complete:
            return
        low = list(islice(self._ended_low(view.final), RULED_PER_ROUND))
        if low:
            await self._rule(view.final, low)
        paid = await self.fund.pay_due()
        if paid:
            _log.info("uptime_credited", usd=format_usd(paid))

    async def told_of(self, order_ids: Sequence[str]) -> tuple[Mapping[str, UptimeCreditRow], UptimeFundStatus | None]:
        """The rulings on these; and, if one waits to be paid, how the fund stands."""
        rows = await self.store.find(order_ids) if order_ids else {}
        waits = any(row.due_nano and row.paid_nano is None for row in rows.values())
        return rows, await self.fund.status() if waits else None

    def _ended_low(self, state: MarketState) -> Iterator[str]:
        """The newest first; those that were up for long enough are passed over for good."""
        oldest = self.clock.unix_s() - LOOK_BACK_S
        for order_id in islice(reversed(state.ended_orders), ENDED_LOOKED_AT_MAX):
            lease = state.leases.get(order_id)
            if lease is not None and (lease.closed_at or 0) < oldest:
                return
            if order_id in self._seen:
                continue
            if lease is None or lease.closed_at is None or not lease.uptime.is_below_goal:
                self._seen.add(order_id)
            else:
                yield order_id

    async def _rule(self, state: MarketState, order_ids: Sequence[str]) -> None:
        for renter in await self.store.renters_of(order_ids):
            lease = state.leases[renter.order_id]
            owners = await self._owners_of(state, lease)
            stream = state.streams[renter.order_id]
            ruling = rule_on_uptime(lease.uptime, stream, is_own_provider=renter.account_id in owners)
            if ruling is not None:
                await self.store.insert(_row(renter, lease, ruling))
        self._seen.update(order_ids)  # also orders of strangers, who have no account to credit

    async def _owners_of(self, state: MarketState, lease: LeaseRecord) -> set[AccountId]:
        """Of all providers that ever had it, by their addresses and by their nodes' keys."""
        providers = sorted(lease.held_by)
        records = [state.providers[provider] for provider in providers if provider in state.providers]
        node_keys = sorted({change.node_key for record in records for change in record.node_keys})
        return await self.store.accounts_behind(providers, node_keys=node_keys)


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
