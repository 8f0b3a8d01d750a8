from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, RateLimited
from sparewatt.core.ids import AccountId
from sparewatt.ledger.chain_request_client import WAIT_S, ChainRequestClient
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState, ChainRequestStore, NewChainRequest
from sparewatt.store.request_params import ChainRequestKind
from sparewatt.testing.clocks import InstantClock

NEW = NewChainRequest("deposit:acc_ann:r", ChainRequestKind.DEPOSIT, AccountId("acc_ann"), "0x" + "a" * 40, 5)


class SlowRequests(ChainRequestStore):
    """A request is finished after it was looked at `looks` times."""

    def __init__(self, looks: int) -> None:
        self.rows: dict[str, ChainRequestRow] = {}
        self.looks = looks
        self.is_full = False
        self.trouble: str | None = None

    async def problem(self) -> str | None:
        return self.trouble

    async def insert(self, new: NewChainRequest, *_: object, **__: object) -> bool:
        if new.id in self.rows or self.is_full:
            return False
        self.rows[new.id] = ChainRequestRow(new.id, new.kind, new.account_id, new.address, new.micro, new.params)
        return True

    async def find(self, request_id: str) -> ChainRequestRow | None:
        self.looks -= 1
        row = self.rows.get(request_id)
        return replace(row, state=ChainRequestState.DONE) if row is not None and self.looks <= 0 else row


async def test_a_request_is_new_once() -> None:
    client = ChainRequestClient(SlowRequests(100), InstantClock())
    assert [(await client.submit(NEW))[0] for _ in range(2)] == [True, False]


async def test_an_account_with_too_much_under_way_is_told_to_wait() -> None:
    store = SlowRequests(100)
    store.is_full = True
    with pytest.raises(RateLimited):
        await ChainRequestClient(store, InstantClock()).submit(NEW)


async def test_a_chain_that_cannot_work_is_told_at_once() -> None:
    store = SlowRequests(100)
    store.trouble = "The contracts are of another release."
    with pytest.raises(ContractsOutdated, match="another release"):
        await ChainRequestClient(store, InstantClock()).submit(NEW)
    assert store.rows == {}


async def test_it_waits_until_the_request_is_finished() -> None:
    client = ChainRequestClient(SlowRequests(10), InstantClock())
    await client.submit(NEW)
    assert (await client.wait(NEW.id, hint="")).state is ChainRequestState.DONE


async def test_it_returns_earlier_where_the_caller_needs_less() -> None:
    client = ChainRequestClient(SlowRequests(10), InstantClock())
    await client.submit(NEW)
    row = await client.wait(NEW.id, hint="", until=lambda row: row.kind is ChainRequestKind.DEPOSIT)
    assert row.state is ChainRequestState.ASKED


async def test_it_gives_up_with_a_hint() -> None:
    clock = InstantClock()
    began_s = clock.now_s()
    with pytest.raises(ChainUnavailable, match="look again later"):
        await ChainRequestClient(SlowRequests(10**9), clock).wait("none", hint="look again later")
    assert clock.now_s() - began_s >= WAIT_S
