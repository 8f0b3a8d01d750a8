"""A gateway waits for the chain's process, unless that process says that it cannot work."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, RateLimited
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.chain_request_client import WAIT_S, ChainRequestClient
from sparewatt.ledger.deposit_adapters import deposit_request
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState, ChainRequestStore, NewChainRequest
from sparewatt.testing.clocks import ManualClock

NEW = deposit_request(AccountId("acc_ann"), address="0x" + "a" * 40, reference="r", nano=Nano(1_000))
OUTDATED = "The contracts are of another release."


@dataclass
class Requests:
    """A table of requests in memory."""

    trouble: str | None = None
    is_full: bool = False
    rows: dict[str, ChainRequestRow] = field(default_factory=dict)

    async def problem(self) -> str | None:
        return self.trouble

    async def insert(self, new: NewChainRequest, **_: object) -> bool:
        if self.is_full or new.id in self.rows:
            return False
        self.rows[new.id] = ChainRequestRow(new.id, new.kind, new.account_id, new.address, new.micro, new.params)
        return True

    async def find(self, request_id: str) -> ChainRequestRow | None:
        return self.rows.get(request_id)


class HurryingClock(ManualClock):
    """Time passes whenever it is looked at."""

    def now_s(self) -> float:
        self.advance(1.0)
        return super().now_s()


def client_of(requests: Requests, *, clock: Any = None) -> ChainRequestClient:
    return ChainRequestClient(cast(ChainRequestStore, requests), clock or ManualClock())


async def test_a_request_is_submitted_once() -> None:
    client = client_of(Requests())
    assert [(await client.submit(NEW))[0] for _ in range(2)] == [True, False]


async def test_nothing_is_asked_of_contracts_of_another_release() -> None:
    requests = Requests(trouble=OUTDATED)
    with pytest.raises(ContractsOutdated, match="another release"):
        await client_of(requests).submit(NEW)
    assert requests.rows == {}


async def test_too_many_requests_are_refused() -> None:
    with pytest.raises(RateLimited):
        await client_of(Requests(is_full=True)).submit(NEW)


async def test_a_finished_request_is_returned() -> None:
    requests = Requests()
    _, row = await client_of(requests).submit(NEW)
    requests.rows[row.id] = replace(row, state=ChainRequestState.DONE)
    assert (await client_of(requests).wait(NEW.id, hint="")).state is ChainRequestState.DONE


@pytest.mark.parametrize(("trouble", "error"), [(None, ChainUnavailable), (OUTDATED, ContractsOutdated)])
async def test_who_waited_in_vain_hears_why(trouble: str | None, error: type[Exception]) -> None:
    requests, clock = Requests(), HurryingClock(now_s=0.0)
    client = client_of(requests, clock=clock)
    await client.submit(NEW)
    requests.trouble = trouble
    with pytest.raises(error):
        await client.wait(NEW.id, hint="Ask again.", until=lambda _: False)
    assert clock.now_s() >= WAIT_S
