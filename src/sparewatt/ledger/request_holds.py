"""Credits that are held for a request to the chain, also where a gateway has reserved some of them for inference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from sparewatt.core.errors import InsufficientCredits
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano, format_usd
from sparewatt.store.chain_requests import NewChainRequest
from sparewatt.store.credit_holds import REQUEST, CreditHoldRow, CreditHoldStore

FreeIdleSlices: TypeAlias = Callable[[AccountId], Awaitable[None]]
"""Has gateways return what they have reserved of an account and no request needs. `Ledger.free_idle_slices`."""


async def hold_for_request(
    holds: CreditHoldStore,
    new: NewChainRequest,
    nano: Nano,
    *,
    with_promo: bool,
    free_idle_slices: FreeIdleSlices | None,
) -> None:
    """Hold credits until the request has ended. Raises InsufficientCredits.

    Part of a busy account's credits is in slices of gateways: these are asked for it before it is told to have too few.
    """
    hold = CreditHoldRow(new.id, REQUEST, new.account_id, new.address)
    if await holds.hold(hold, with_promo=with_promo, nano=nano) is not None:
        return
    if free_idle_slices is not None:
        await free_idle_slices(new.account_id)
        if await holds.hold(hold, with_promo=with_promo, nano=nano) is not None:
            return
    raise InsufficientCredits(
        f"Your credits do not cover ${format_usd(nano)}. 'sparewatt credits' shows what you have."
    )
