"""A renter's changes of a running lease: each becomes one chain request per id, or two if the deposit has to grow.

Repeated under its id a change goes on where it stood. Its money comes first: a lease that is longer than its deposit
would be paused, a deposit that is larger than its lease comes back.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparewatt.core.clock import sleep_until
from sparewatt.core.errors import (
    ChainUnavailable,
    IdReused,
    InvalidField,
    LeaseNotFound,
    MaxSpendReached,
    UnprocessableContent,
)
from sparewatt.core.ids import AccountId
from sparewatt.leasing.changes.change_rules import (
    ChangePlan,
    LeaseChange,
    checked_cap,
    plan_change,
    require_acceptable,
    require_running,
    usd,
)
from sparewatt.leasing.changes.content_change import changed_spec
from sparewatt.leasing.changes.scaling import ScalePlan, plan_scale
from sparewatt.leasing.lease_requests import BatchNames, request_id
from sparewatt.leasing.orders.order_fields import COUNT_MAX
from sparewatt.leasing.orders.order_service import SAME_NAME_MAX, LeaseOrderService, lease_ids_of
from sparewatt.leasing.orders.pricing import least_deposit
from sparewatt.leasing.orders.terms import FURTHER_ATTEMPTS, times_of
from sparewatt.market.accrual import PaymentStream
from sparewatt.market.chain_records import LeaseRecord, LeaseState, MarketState, OrderState
from sparewatt.market.lease_history import EVENTS_MAX, HISTORY_EVENTS, HistoryEntry, history_of
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.lease_orders import LeaseOrderRow, LeaseSpec
from sparewatt.store.request_params import ChainRequestKind, LeaseParams, OrderParams, ReopenParams, UpdateParams

ACCEPT_WAIT_S, POLL_S = 12.0, 0.1
"""How long a reply waits for the provider's word on a proposal: its node answers in a second or two."""


@dataclass(frozen=True, slots=True)
class MadeChange:
    plan: ChangePlan
    top_up: ChainRequestRow | None
    update: ChainRequestRow
    is_accepted: bool
    """False: the provider has not said so yet. It still may."""


@dataclass(frozen=True, slots=True)
class MadeScale:
    plan: ScalePlan
    ordered: tuple[LeaseOrderRow, ...]
    deposit_uusd: int
    """Of each that is ordered."""


@dataclass(frozen=True, slots=True)
class LeaseChangeService:
    orders: LeaseOrderService
    _capping: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from the look at a cap until what is added counts: two top-ups at once do not pass one cap."""

    # the meter

    async def pause(self, row: LeaseOrderRow, *, reference: str) -> ChainRequestRow:
        """Raises UnprocessableContent for a lease that does not run."""
        if not await self.orders.was_asked(row, ChainRequestKind.PAUSE, reference=reference):
            require_running(self._lease(row))
        return await self.orders.act(row, ChainRequestKind.PAUSE, reference=reference)

    async def resume(self, row: LeaseOrderRow, *, reference: str) -> ChainRequestRow:
        if not await self.orders.was_asked(row, ChainRequestKind.RESUME, reference=reference):
            lease = self._lease(row)
            if lease.state is not LeaseState.PAUSED:
                raise UnprocessableContent("Only a paused lease can be resumed.")
            if self._stream(row).deposit_uusd < max(1, lease.rate_uusd // 60):
                raise UnprocessableContent(
                    f"Its deposit is used up. 'sparewatt lease top-up {row.lease_id} USD' adds to it, and resumes it."
                )
        return await self.orders.act(row, ChainRequestKind.RESUME, reference=reference)

    async def top_up(
        self, row: LeaseOrderRow, *, micro: int, max_spend_micro: int | None, reference: str
    ) -> ChainRequestRow:
        """Raises MaxSpendReached, InsufficientCredits, or UnprocessableContent for what has ended."""
        order_id, state = self.orders.on_chain(row)
        async with self._capping:
            if not await self.orders.was_asked(row, ChainRequestKind.TOP_UP, reference=reference):
                order = state.orders.get(order_id)
                if order is None or order.state not in {OrderState.OPEN, OrderState.MATCHED, OrderState.UNMATCHED}:
                    raise UnprocessableContent("It has ended, so nothing can be added to its deposit.")
                await self._raise_cap(row, adding=micro, raised=max_spend_micro)
            requests = self.orders.requests
            asked = await requests.top_up(row.account_id, order_id, micro=micro, reference=reference)
        return await self.orders.finished(asked)

    async def _raise_cap(self, row: LeaseOrderRow, *, adding: int, raised: int | None) -> None:
        """Raises MaxSpendReached; then nothing has changed."""
        order_id, store = row.order_id or "", self.orders.database.lease_orders
        under_way = await store.top_ups_under_way_micro(row.account_id, order_id)
        cap = checked_cap(
            put_in_uusd=self._stream(row).deposited_uusd + under_way,
            adding_uusd=adding,
            cap_uusd=row.max_spend_micro,
            raised_uusd=raised,
        )
        if cap is not None and cap != row.max_spend_micro:
            await store.set_max_spend(row.account_id, row.lease_id, micro=cap)

    # its terms

    def plan(self, row: LeaseOrderRow, change: LeaseChange) -> ChangePlan:
        """What it would mean now. Raises UnprocessableContent, InvalidField or MaxSpendReached."""
        order_id, state = self.orders.on_chain(row)
        lease, stream = self._lease(row), self._stream(row)
        plan = plan_change(change, lease, stream, state.orders[order_id].terms, at=self._now())
        offer = self.orders.offer_of(lease.provider or "")
        require_acceptable(plan, offer, row.specification, ordered_s=state.orders[order_id].terms.duration_s)
        checked_cap(
            put_in_uusd=stream.deposited_uusd,
            adding_uusd=plan.top_up_uusd,
            cap_uusd=row.max_spend_micro,
            raised_uusd=change.max_spend_uusd,
        )
        return plan

    async def change(self, row: LeaseOrderRow, change: LeaseChange, *, reference: str) -> MadeChange:
        """Raises what `plan` raises, InsufficientCredits, and IdReused."""
        known = await self._known_update(row, change, reference)
        plan = self.plan(row, change) if known is None else self._known_plan(known, change)
        spec = await self.changed_spec(row, change) if known is None else None
        top_up = await self._fund(row, plan, change, reference, is_new=known is None)
        update = await self.orders.finished(known or await self._propose(row, plan, change, reference, spec=spec))
        return MadeChange(plan, top_up, update, await self._accepted(row, update.params.seq))

    async def changed_spec(self, row: LeaseOrderRow, change: LeaseChange) -> LeaseSpec | None:
        """What shall run instead; None if that stays. Raises InvalidField or UnprocessableContent."""
        if change.content is None:
            return None
        running = await self.orders.running_spec(row)
        if running is None:
            raise ChainUnavailable("What runs cannot be read now. Try again in a moment.")
        return changed_spec(running, change.content)

    async def _known_update(self, row: LeaseOrderRow, change: LeaseChange, reference: str) -> ChainRequestRow | None:
        found = await self._find(row, ChainRequestKind.UPDATE, reference)
        if found is not None and (not isinstance(found.params, UpdateParams) or found.params.asked != change.asked):
            raise IdReused("This id was used before, for something else, so nothing was done.", param="id")
        return found

    def _known_plan(self, known: ChainRequestRow, change: LeaseChange) -> ChangePlan:
        """Of a proposal that was made before: its numbers are those of that time."""
        rate, duration_s = known.params.rate_uusd, known.params.duration_s
        return ChangePlan(
            rate_uusd=rate,
            duration_s=duration_s,
            ends_at=self._now() + duration_s,
            cost_uusd=-(-rate * duration_s // 3_600),
            top_up_uusd=0,
            max_spend_uusd=change.max_spend_uusd,
        )

    async def _fund(
        self, row: LeaseOrderRow, plan: ChangePlan, change: LeaseChange, reference: str, *, is_new: bool
    ) -> ChainRequestRow | None:
        """What was added, now or when this id was first asked."""
        found = await self._find(row, ChainRequestKind.TOP_UP, reference)
        if found is not None:
            if not isinstance(found.params, LeaseParams) or found.params.asked != change.asked:
                raise IdReused("This id was used before, for something else, so nothing was done.", param="id")
            return await self.orders.finished(found)
        if not is_new:
            return None
        async with self._capping:
            await self._raise_cap(row, adding=plan.top_up_uusd, raised=change.max_spend_uusd)
            if not plan.top_up_uusd:
                return None
            asked = await self.orders.requests.top_up(
                row.account_id, row.order_id or "", micro=plan.top_up_uusd, reference=reference, asked=change.asked
            )
        return await self.orders.finished(asked)

    async def _propose(
        self, row: LeaseOrderRow, plan: ChangePlan, change: LeaseChange, reference: str, *, spec: LeaseSpec | None
    ) -> ChainRequestRow:
        """`spec`: what shall run instead; stored first: the node is shown it as soon as the chain has its hash."""
        order_id, state = self.orders.on_chain(row)
        lease = self._lease(row)
        if spec is not None:
            await self.orders.database.lease_orders.save_spec(spec)
        last = max(lease.update_seq, lease.proposed.seq if lease.proposed is not None else 0)
        params = UpdateParams(
            order_id=order_id,
            spec_hash=state.orders[order_id].spec_hash if spec is None else spec.spec_hash,
            rate_uusd=plan.rate_uusd,
            duration_s=plan.duration_s,
            seq=max(
                last + 1, self._now()
            ),  # time: a proposal of an earlier term is forgotten here, not by the contract
            asked=change.asked,
        )
        return await self.orders.requests.propose_update(row.account_id, params, reference=reference)

    async def _accepted(self, row: LeaseOrderRow, seq: int) -> bool:
        """Whether the provider has accepted it, after a while at most."""
        clock = self.orders.requests.clock
        deadline_s = clock.now_s() + ACCEPT_WAIT_S
        while True:
            lease = self.orders.market.view().latest.leases.get(row.order_id or "")
            if lease is not None and lease.update_seq >= seq:
                return True
            if lease is None or lease.state is not LeaseState.ACTIVE or clock.now_s() >= deadline_s:
                return False
            await sleep_until(clock, clock.now_s() + POLL_S)

    # a new auction

    async def reopen(self, row: LeaseOrderRow, *, reference: str) -> ChainRequestRow:
        """Of an order without a provider, beyond what the network does by itself. Raises UnprocessableContent."""
        order_id, state = self.orders.on_chain(row)
        order = state.orders.get(order_id)
        is_known = await self.orders.was_asked(row, ChainRequestKind.REOPEN, reference=reference)
        if order is None or (not is_known and order.state is not OrderState.UNMATCHED):
            raise UnprocessableContent("Only an order that has found no provider gets a new auction.")
        params = ReopenParams(order_id, order.terms)
        return await self.orders.finished(
            await self.orders.requests.reopen(row.account_id, params, reference=reference)
        )

    # how many

    async def plan_scale(self, account: AccountId, name: str, *, count: int, max_spend_uusd: int | None) -> MadeScale:
        """Raises InvalidField, UnprocessableContent or MaxSpendReached."""
        if not 0 <= count <= COUNT_MAX:
            raise InvalidField(f"'count' is from 0 to {COUNT_MAX}.", param="count")
        leases = self._state().leases
        found = await self.orders.database.lease_orders.find(account, name, limit=SAME_NAME_MAX)
        named = [row for row in found if row.name == name]
        if not named:
            raise LeaseNotFound(f"You have no lease {name[:70]!r}.")
        rows = self.orders.not_ended(named)
        if not rows:
            raise UnprocessableContent("All leases of this name have ended. 'sparewatt lease create' orders new ones.")
        plan = plan_scale(rows, leases, count=count)
        deposit = _deposit_of(rows[0], plan.ordered, max_spend_uusd=max_spend_uusd) if plan.ordered else 0
        return MadeScale(plan, (), deposit)

    async def scale(
        self, account: AccountId, name: str, *, count: int, max_spend_uusd: int | None, reference: str
    ) -> MadeScale:
        """Raises what `plan_scale` raises, InsufficientCredits, RateLimited and IdReused."""
        asked_hash = hashlib.sha256(f"scale\n{name}\n{count}\n{max_spend_uusd}".encode()).hexdigest()
        known = await self.orders.database.lease_orders.find_batch(account, reference, limit=COUNT_MAX)
        if known and known[0].asked_hash != asked_hash:
            raise IdReused("This id was used before, for another order, so nothing was done.", param="id")
        if known:
            return MadeScale(ScalePlan((), (), len(known)), tuple(known), known[0].deposit_micro)
        made = await self.plan_scale(account, name, count=count, max_spend_uusd=max_spend_uusd)
        await self._end_all(made.plan.ended, reference)
        if not made.plan.ordered:
            return made
        per_lease = None if max_spend_uusd is None else max_spend_uusd // made.plan.ordered
        await self._order_more(account, made, reference, asked_hash, max_spend=per_lease)
        ordered = await self.orders.database.lease_orders.find_batch(account, reference, limit=COUNT_MAX)
        return MadeScale(made.plan, tuple(ordered), made.deposit_uusd)

    async def _order_more(
        self, account: AccountId, made: MadeScale, reference: str, asked_hash: str, *, max_spend: int | None
    ) -> None:
        like = (await self.orders.database.lease_orders.find(account, made.plan.kept[0].lease_id, limit=1))[0]
        index = await self.orders.database.chain.index()
        if like.params is None or like.content is None or index is None:
            raise ChainUnavailable("What was ordered cannot be read now. Order it anew with 'sparewatt lease create'.")
        asked = OrderParams(
            like.params.terms,
            like.spec_hash,
            int(self.orders.requests.clock.unix_s()) + times_of(index.chain_id).life_s,
            0 if like.secrets else FURTHER_ATTEMPTS,
        )
        batch = BatchNames(
            reference=reference,
            name=like.name,
            asked_hash=asked_hash,
            spec=LeaseSpec(like.spec_hash, like.specification, like.content),
            lease_ids=lease_ids_of(account, reference, count=made.plan.ordered),
            max_spend_micro=max_spend,
        )
        await self.orders.requests.order_batch(account, asked, deposit_micro=made.deposit_uusd, batch=batch)

    async def _end_all(self, rows: Sequence[LeaseOrderRow], reference: str) -> None:
        """Asked at once; what the chain has not done when the reply goes out, it does afterwards."""
        asked = []
        for row in rows:
            order_id, state = self.orders.on_chain(row)
            kind = ChainRequestKind.CLOSE if order_id in state.leases else ChainRequestKind.CANCEL
            own = hashlib.sha256(f"{reference}\n{row.lease_id}".encode()).hexdigest()[:32]
            asked.append(await self.orders.requests.act(row.account_id, kind, order_id, reference=own))
        ended = await asyncio.gather(*(self.orders.finished(each) for each in asked), return_exceptions=True)
        for each in ended:
            if isinstance(each, BaseException) and not isinstance(each, ChainUnavailable):
                raise each

    # what happened

    async def history(self, row: LeaseOrderRow) -> list[HistoryEntry]:
        if row.order_id is None:
            return []
        store = self.orders.database.market_events
        events = await store.events_of_lease(row.order_id, names=HISTORY_EVENTS, limit=EVENTS_MAX)
        return history_of(row.order_id, events, now=self._now())

    # the market

    def _state(self) -> MarketState:
        return self.orders.market.view().latest

    def _lease(self, row: LeaseOrderRow) -> LeaseRecord:
        order_id, state = self.orders.on_chain(row)
        lease = state.leases.get(order_id)
        if lease is None:
            raise UnprocessableContent("No provider has this lease yet.")
        return lease

    def _stream(self, row: LeaseOrderRow) -> PaymentStream:
        return self._state().streams.get(row.order_id or "", PaymentStream(0))

    def _now(self) -> int:
        """The chain's time, as far as it is known: it may be ahead of this machine's."""
        return max(int(self.orders.requests.clock.unix_s()), self.orders.market.view().latest_unix_s)

    async def _find(self, row: LeaseOrderRow, kind: ChainRequestKind, reference: str) -> ChainRequestRow | None:
        return await self.orders.database.chain_requests.find(request_id(kind, row.account_id, reference))


def _deposit_of(like: LeaseOrderRow, ordered: int, *, max_spend_uusd: int | None) -> int:
    """Of each further lease: as the others have, or a share of what the renter says. Raises MaxSpendReached."""
    least = least_deposit(like.params.terms.max_price_uusd) if like.params is not None else 1
    if max_spend_uusd is None:
        if like.max_spend_micro is not None:
            raise MaxSpendReached(
                f"These leases were ordered with a 'max_spend', and {ordered} more would cost more. Say what the new "
                f"ones may cost together: 'max_spend' (--max-spend {usd(like.deposit_micro * ordered)} gives each as "
                "much as the others have).",
                param="max_spend",
            )
        return like.deposit_micro
    deposit = min(like.deposit_micro, max_spend_uusd // ordered)
    if deposit < least:
        raise InvalidField(
            f"'max_spend' is below ${usd(least * ordered)}: each lease needs a deposit for ten minutes at its highest "
            "price.",
            param="max_spend",
        )
    return deposit
