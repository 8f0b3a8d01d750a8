"""A renter's chain requests: an order, and what may be done with it and its lease afterwards.

The network signs for the renter and pays the gas, so each account has a limit of orders per hour and of requests under
way at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparewatt.core.clock import Clock
from sparewatt.core.errors import (
    ChainUnavailable,
    ContractsOutdated,
    IdReused,
    InvalidField,
    RateLimited,
)
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.chain_request_client import ChainRequestClient
from sparewatt.ledger.credits import checked_transfer_nano
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.ledger.request_holds import FreeIdleSlices, hold_for_request
from sparewatt.store.chain_requests import ChainRequestRow, InsertLimit, NewChainRequest
from sparewatt.store.database import Database
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


@dataclass(frozen=True, slots=True)
class LeaseRequestService:
    """Each method submits a request, once per reference, and returns it. `ChainRequestClient` waits for its end."""

    database: Database
    clock: Clock
    is_test_money: bool
    """Free credits pay for leases too."""
    free_idle_slices: FreeIdleSlices | None
    """None on a network that charges nothing."""

    async def order(
        self, account: AccountId, asked: OrderParams, *, deposit_micro: int, reference: str
    ) -> ChainRequestRow:
        """The order's id is in `result` from the first block that has it. Raises InvalidField, InsufficientCredits
        or RateLimited."""
        check_order(asked, deposit_micro=deposit_micro, unix_s=self.clock.unix_s())
        return await self._submit(account, ChainRequestKind.ORDER, asked, micro=deposit_micro, reference=reference)

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

    async def top_up(self, account: AccountId, order_id: str, *, micro: int, reference: str) -> ChainRequestRow:
        if micro <= 0:
            raise InvalidField("A top-up is more than nothing.", param="usd")
        params = LeaseParams(_checked_hash(order_id))
        return await self._submit(account, ChainRequestKind.TOP_UP, params, micro=micro, reference=reference)

    async def propose_update(self, account: AccountId, asked: UpdateParams, *, reference: str) -> ChainRequestRow:
        """The provider has to accept it."""
        return await self._submit(account, ChainRequestKind.UPDATE, asked, reference=reference)

    async def _submit(
        self, account: AccountId, kind: ChainRequestKind, params: RequestParams, *, micro: int = 0, reference: str
    ) -> ChainRequestRow:
        if not 1 <= len(reference) <= REFERENCE_CHARS_MAX:
            raise InvalidField(f"'id' has 1 to {REFERENCE_CHARS_MAX} characters.", param="id")
        if micro:
            checked_transfer_nano(micro * NANO_PER_MICRO)
        await self._require_chain()
        address = await self._address_of(account)
        new = NewChainRequest(f"{kind.value}:{account}:{reference}", kind, account, address, micro, params)
        requests = ChainRequestClient(self.database.chain_requests, self.clock)
        is_held = micro > 0 and await requests.store.find(new.id) is None and await self._hold(new)
        try:
            _, row = await requests.submit(new, limit=limit_of(kind))
        except (RateLimited, ContractsOutdated) as error:
            if is_held:
                await self.database.credit_holds.release(new.id)
            if isinstance(error, ContractsOutdated):
                raise
            raise RateLimited(
                f"This account has too many requests under way on the chain, or {ORDERS_PER_HOUR} orders in the last "
                "hour. Try again later."
            ) from None
        if (row.micro, row.params) != (new.micro, new.params):
            raise IdReused("This id was used before, for something else, so nothing was done.", param="id")
        return row

    async def _hold(self, new: NewChainRequest) -> bool:
        """Hold the credits that the request needs beyond what stands on the chain. Raises InsufficientCredits."""
        missing = new.micro - await self.database.pockets.payable_micro(new.address)
        if missing <= 0:
            return False
        await hold_for_request(
            self.database.credit_holds,
            new,
            Nano(missing * NANO_PER_MICRO),
            with_promo=self.is_test_money,
            free_idle_slices=self.free_idle_slices,
        )
        return True

    async def _require_chain(self) -> None:
        index = await self.database.chain.index()
        if index is None or ORDERS not in index.contracts:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")

    async def _address_of(self, account: AccountId) -> str:
        row = await self.database.accounts.find_account(account)
        if row is None or row.chain_address is None:
            raise InvalidField("This account has no address on the chain.")
        return row.chain_address


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


def _checked_hash(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise InvalidField("An order's id is 0x and 64 hex digits in lower case.", param="order_id")
    return text
