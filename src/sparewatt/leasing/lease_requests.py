"""A renter's chain requests: an order, and what may be done with it and its lease afterwards.

The network signs for the renter and pays the gas, so each account has a limit of orders per hour and of requests under
way at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.core.clock import Clock
from sparewatt.core.errors import (
    ChainUnavailable,
    ContractsOutdated,
    IdReused,
    InsufficientCredits,
    InvalidField,
    RateLimited,
)
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano, format_usd
from sparewatt.ledger.chain_request_client import ChainRequestClient
from sparewatt.ledger.credits import checked_transfer_nano
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.ledger.request_holds import FreeIdleSlices, hold_for_request
from sparewatt.store.chain_requests import (
    OPEN_REQUESTS_MAX,
    ChainRequestRow,
    InsertLimit,
    NewChainRequest,
    RequestUse,
)
from sparewatt.store.database import Database
from sparewatt.store.lease_orders import LeaseSpec, NewLeaseBatch, NewLeaseOrder
from sparewatt.store.request_params import (
    ChainRequestKind,
    LeaseParams,
    OrderParams,
    ReopenParams,
    RequestParams,
    UpdateParams,
)

ORDERS = "deployment_order"
ORDERS_PER_HOUR = 60
"""Of one account: an order every minute. Each costs the network about 0.6 M gas."""
HOUR_S = 3_600
UNDER_WAY_RETRY_S = 5.0
"""Requests of one address are sent one after the other, each for a second or two on a local chain."""
ORDER_LIFE_S_MAX = 30 * 86_400
ATTEMPTS_MAX = 16
MIN_DEPOSIT_S = 600
"""As the order contract has them; refused here at no cost in gas."""
REFERENCE_CHARS_MAX = 64
_HASH = re.compile(r"0x[0-9a-f]{64}")

_LEASE_KINDS = frozenset(
    {
        ChainRequestKind.CANCEL,
        ChainRequestKind.PAUSE,
        ChainRequestKind.RESUME,
        ChainRequestKind.CLOSE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNames:
    """How the orders of a batch are stored; they differ by their ids alone."""

    reference: str
    """The client's idempotency key."""
    name: str
    asked_hash: str
    spec: LeaseSpec
    lease_ids: tuple[str, ...]
    max_spend_micro: int | None = None
    """Of each of them."""


@dataclass(frozen=True, slots=True)
class LeaseRequestService:
    """Each method submits a request, once per reference, and returns it. `ChainRequestClient` waits for its end."""

    database: Database
    clock: Clock
    is_test_money: bool
    """Free credits pay for leases too."""
    free_idle_slices: FreeIdleSlices | None
    """None on a network that charges nothing."""

    async def order_batch(
        self, account: AccountId, asked: OrderParams, *, deposit_micro: int, batch: BatchNames
    ) -> bool:
        """Orders of one kind under one name: the credits of all are held and all are sent, or nothing is.

        False if one of the ids was used before. Raises InvalidField, InsufficientCredits or RateLimited.
        """
        check_order(asked, deposit_micro=deposit_micro, unix_s=self.clock.unix_s())
        checked_transfer_nano(deposit_micro * len(batch.lease_ids) * NANO_PER_MICRO)
        for lease_id in batch.lease_ids:
            _check_reference(lease_id)
        await self._require_chain()
        requests = ChainRequestClient(self.database.chain_requests, self.clock)
        await requests.require_working_chain()
        address = await self._address_of(account)
        kind = ChainRequestKind.ORDER
        new = [
            NewLeaseOrder(
                each, NewChainRequest(request_id(kind, account, each), kind, account, address, deposit_micro, asked)
            )
            for each in batch.lease_ids
        ]
        if await requests.store.find(new[0].request.id) is not None:
            return False
        held = await self._hold_all([order.request for order in new])
        stored = NewLeaseBatch(
            account_id=account,
            reference=batch.reference,
            name=batch.name,
            asked_hash=batch.asked_hash,
            spec=batch.spec,
            orders=tuple(new),
            max_spend_micro=batch.max_spend_micro,
        )
        if await self.database.lease_orders.insert(stored, limit=limit_of(kind)):
            return True
        await self._release(held, account)
        if await requests.store.find(new[0].request.id) is not None:
            return False  # the same id came twice at once
        raise await self._too_many(account, kind, wanted=len(new))

    async def reopen(self, account: AccountId, asked: ReopenParams, *, reference: str) -> ChainRequestRow:
        """A new auction of an order without a provider; as often per hour as an order."""
        return await self._submit(account, ChainRequestKind.REOPEN, asked, reference=reference)

    async def act(
        self, account: AccountId, kind: ChainRequestKind, order_id: str, *, reference: str
    ) -> ChainRequestRow:
        """Cancel an order, or pause, resume or close its lease."""
        if kind not in _LEASE_KINDS:
            raise ValueError(f"{kind} needs more than an order")
        return await self._submit(account, kind, LeaseParams(_checked_hash(order_id)), reference=reference)

    async def top_up(
        self, account: AccountId, order_id: str, *, micro: int, reference: str, asked: str = ""
    ) -> ChainRequestRow:
        """`asked`: what it is part of, to tell a repeated request from another one with the same id."""
        if micro <= 0:
            raise InvalidField("A top-up is more than nothing.", param="usd")
        params = LeaseParams(_checked_hash(order_id), asked)
        return await self._submit(account, ChainRequestKind.TOP_UP, params, micro=micro, reference=reference)

    async def propose_update(self, account: AccountId, asked: UpdateParams, *, reference: str) -> ChainRequestRow:
        """The provider has to accept it."""
        return await self._submit(account, ChainRequestKind.UPDATE, asked, reference=reference)

    async def _submit(
        self, account: AccountId, kind: ChainRequestKind, params: RequestParams, *, micro: int = 0, reference: str
    ) -> ChainRequestRow:
        _check_reference(reference)
        if micro:
            checked_transfer_nano(micro * NANO_PER_MICRO)
        await self._require_chain()
        address = await self._address_of(account)
        new = NewChainRequest(request_id(kind, account, reference), kind, account, address, micro, params)
        requests = ChainRequestClient(self.database.chain_requests, self.clock)
        is_held = micro > 0 and await requests.store.find(new.id) is None and await self._hold(new)
        try:
            _, row = await requests.submit(new, limit=limit_of(kind))
        except (RateLimited, ContractsOutdated) as error:
            if is_held:
                await self._release([new.id], account)
            if isinstance(error, ContractsOutdated):
                raise
            raise await self._too_many(account, kind, wanted=1) from None
        if (row.micro, row.params) != (new.micro, new.params):
            raise IdReused("This id was used before, for something else, so nothing was done.", param="id")
        return row

    async def _hold(self, new: NewChainRequest) -> bool:
        """Hold the credits that the request needs beyond what stands on the chain. Raises InsufficientCredits."""
        missing = new.micro - await self.database.pockets.payable_micro(new.address)
        if missing <= 0:
            return False
        await self._hold_micro(new, missing)
        return True

    async def _hold_micro(self, new: NewChainRequest, micro: int) -> None:
        await hold_for_request(
            self.database.credit_holds,
            new,
            Nano(micro * NANO_PER_MICRO),
            with_promo=self.is_test_money,
            free_idle_slices=self.free_idle_slices,
        )

    async def _hold_all(self, requests: Sequence[NewChainRequest]) -> list[str]:
        """The ids of the holds. What stands on the chain pays for the first ones. Raises InsufficientCredits."""
        on_chain = await self.database.pockets.payable_micro(requests[0].address)
        held: list[str] = []
        for new in requests:
            missing = max(0, new.micro - on_chain)
            on_chain = max(0, on_chain - new.micro)
            if not missing:
                continue
            try:
                await self._hold_micro(new, missing)
            except InsufficientCredits:
                await self._release(held, requests[0].account_id)
                total = format_usd(sum(each.micro for each in requests) * NANO_PER_MICRO)
                raise InsufficientCredits(
                    f"Your credits do not cover the deposit of ${total}. 'sparewatt credits' shows what you have."
                ) from None
            held.append(new.id)
        return held

    async def _release(self, hold_ids: Sequence[str], account: AccountId) -> None:
        """But those of requests with the same ids that were inserted meanwhile."""
        for hold_id in hold_ids:
            await self.database.credit_holds.release_unasked(hold_id, account)

    async def _too_many(self, account: AccountId, kind: ChainRequestKind, *, wanted: int) -> RateLimited:
        """Which limit it is, and when it lets so many more pass."""
        limit = limit_of(kind)
        seconds = 0.0 if limit is None else limit.seconds
        use = await self.database.chain_requests.use_of(account, kind, seconds=seconds)
        return describe_limit(use, limit, wanted=wanted)

    async def _require_chain(self) -> None:
        index = await self.database.chain.index()
        if index is None or ORDERS not in index.contracts:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")

    async def _address_of(self, account: AccountId) -> str:
        row = await self.database.accounts.find_account(account)
        if row is None or row.chain_address is None:
            raise InvalidField("This account has no address on the chain.")
        return row.chain_address


def request_id(kind: ChainRequestKind, account: AccountId, reference: str) -> str:
    return f"{kind.value}:{account}:{reference}"


def limit_of(kind: ChainRequestKind) -> InsertLimit | None:
    """Auctions cost most: orders and their reopenings are counted, the rest is bounded by what is under way."""
    if kind in {ChainRequestKind.ORDER, ChainRequestKind.REOPEN}:
        return InsertLimit(ORDERS_PER_HOUR, HOUR_S)
    return None


def check_order(asked: OrderParams, *, deposit_micro: int, unix_s: float) -> None:
    """What the contract would refuse, at no cost in gas. Raises InvalidField."""
    if not unix_s < asked.expires_at <= unix_s + ORDER_LIFE_S_MAX:
        raise InvalidField("An order expires in the future, at most 30 days ahead.", param="expires_at")
    if not 0 <= asked.max_attempts <= ATTEMPTS_MAX:
        raise InvalidField(f"An order has at most {ATTEMPTS_MAX} further attempts.", param="max_attempts")
    least = asked.terms.max_price_uusd * MIN_DEPOSIT_S // HOUR_S
    if deposit_micro < max(1, least):
        raise InvalidField(
            f"The deposit must cover {MIN_DEPOSIT_S // 60} minutes at the highest price: {least} µUSD.", param="deposit"
        )


def _check_reference(reference: str) -> None:
    if not 1 <= len(reference) <= REFERENCE_CHARS_MAX:
        raise InvalidField(f"'id' has 1 to {REFERENCE_CHARS_MAX} characters.", param="id")


def describe_limit(use: RequestUse, limit: InsertLimit | None, *, wanted: int) -> RateLimited:
    """The refusal of so many more requests, with the time after which they pass."""
    more = "one more" if wanted == 1 else f"{wanted} more"
    over = 0 if limit is None else len(use.recent_left_s) + wanted - limit.requests
    if limit is None or over <= 0:
        return RateLimited(
            f"{use.under_way} requests of this account are under way on the chain, and at most {OPEN_REQUESTS_MAX} may "
            f"be. Wait until some are done, then ask for {more}.",
            retry_after_s=UNDER_WAY_RETRY_S,
        )
    left_s = use.recent_left_s[min(over, len(use.recent_left_s)) - 1] if use.recent_left_s else limit.seconds
    wait_s = max(1.0, left_s)
    return RateLimited(
        f"This account has ordered {len(use.recent_left_s)} times in the last hour, and may {limit.requests} times: "
        f"the network pays for it. There is room for {more} in {-(-int(wait_s) // 60) or 1} min.",
        retry_after_s=wait_s,
    )


def _checked_hash(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise InvalidField("An order's id is 0x and 64 hex digits in lower case.", param="order_id")
    return text
