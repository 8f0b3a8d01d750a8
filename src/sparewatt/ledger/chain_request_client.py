"""A gateway's side of chain requests: it submits one, and waits until the chain's process has finished it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, RateLimited
from sparewatt.store.chain_requests import (
    ChainRequestRow,
    ChainRequestState,
    ChainRequestStore,
    InsertLimit,
    NewChainRequest,
)

WAIT_S = 20.0
"""How long an HTTP request waits until a chain request is final: seconds on a local chain. It continues after that."""
POLL_S = 0.1


def is_finished(row: ChainRequestRow) -> bool:
    return row.state in {ChainRequestState.DONE, ChainRequestState.FAILED}


@dataclass(frozen=True, slots=True)
class ChainRequestClient:
    store: ChainRequestStore
    clock: Clock

    async def submit(self, new: NewChainRequest, *, limit: InsertLimit | None = None) -> tuple[bool, ChainRequestRow]:
        """Whether it is new, and the stored request of its id. Raises RateLimited or ContractsOutdated."""
        await self.require_working_chain()
        is_new = await self.store.insert(new, limit=limit)
        row = await self.store.find(new.id)
        if row is None:
            raise RateLimited("This account has too much under way on the chain. Wait until some of it is done.")
        return is_new, row

    async def wait(
        self, request_id: str, *, hint: str, until: Callable[[ChainRequestRow], bool] = is_finished
    ) -> ChainRequestRow:
        """Raises ChainUnavailable after WAIT_S, with what the caller can do then."""
        deadline_s = self.clock.now_s() + WAIT_S
        while self.clock.now_s() < deadline_s:
            row = await self.store.find(request_id)
            if row is not None and until(row):
                return row
            await sleep_until(self.clock, self.clock.now_s() + POLL_S)
        await self.require_working_chain()
        raise ChainUnavailable(f"The chain is slow. {hint}", retry_after_s=POLL_S)

    async def require_working_chain(self) -> None:
        """Raises ContractsOutdated: a request would wait for ever."""
        problem = await self.store.problem()
        if problem is not None:
            raise ContractsOutdated(problem)
