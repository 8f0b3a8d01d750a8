"""Credits for a request to the chain are found also where gateways have reserved them for inference."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sparewatt.core.errors import InsufficientCredits
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.request_holds import hold_for_request
from sparewatt.store.chain_requests import NewChainRequest
from sparewatt.store.request_params import ChainRequestKind
from tests.unit.leasing.memory_market import MemoryHolds, MemoryProviders, MemoryRequests

REQUEST = NewChainRequest("bond:acc:1", ChainRequestKind.BOND, AccountId("acc"), "0x" + "1" * 40)


@dataclass
class BusyAccount:
    """Some of its credits are in the slice of a gateway, and idle there."""

    idle_nano: int
    holds: MemoryHolds = field(default_factory=lambda: MemoryHolds(MemoryRequests(MemoryProviders())))
    asked: list[AccountId] = field(default_factory=list)

    async def free_idle_slices(self, account: AccountId) -> None:
        self.asked.append(account)
        self.holds.free_nano += self.idle_nano
        self.idle_nano = 0

    async def hold(self, nano: int, *, can_ask: bool = True) -> None:
        free_idle_slices = self.free_idle_slices if can_ask else None
        await hold_for_request(self.holds, REQUEST, Nano(nano), with_promo=True, free_idle_slices=free_idle_slices)


async def test_what_gateways_do_not_need_is_asked_for_before_credits_are_called_too_few() -> None:
    account = BusyAccount(idle_nano=6)
    account.holds.free_nano = 4
    await account.hold(10)
    assert (account.asked, account.holds.held) == ([AccountId("acc")], {REQUEST.id: (10, True)})


async def test_gateways_are_left_alone_where_enough_is_free() -> None:
    account = BusyAccount(idle_nano=6)
    account.holds.free_nano = 10
    await account.hold(10)
    assert (account.asked, account.idle_nano) == ([], 6)


@pytest.mark.parametrize("can_ask", [True, False])
async def test_what_is_not_there_is_not_held(*, can_ask: bool) -> None:
    account = BusyAccount(idle_nano=5 if can_ask else 6)
    account.holds.free_nano = 4
    with pytest.raises(InsufficientCredits, match="do not cover"):
        await account.hold(10, can_ask=can_ask)
    assert account.holds.held == {}
