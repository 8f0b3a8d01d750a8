"""Posts the roots of payout batches, in order, each within what the pool holds.

A batch that promises more waits for deposits; where money is test money, the faucet covers it, since credits were given
away there as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from sparewatt.chain.abi import Contract
from sparewatt.chain.client import ChainClient
from sparewatt.chain.outbox import decide
from sparewatt.chain.settlement import CREDITS, Pool, credit_pool, token_of, view
from sparewatt.core.log import Log
from sparewatt.store.chain import ChainStore
from sparewatt.store.payouts import BatchRow, PayoutStore

_log = Log("sparewatt.chain")


class Move(Enum):
    WAIT = "wait"
    """The chain has it; its event is not final yet."""
    POST = "post"
    COVER = "cover"
    WANT_FUNDS = "want_funds"
    WANT_EARLIER = "want_earlier"
    """The chain lacks a batch that was posted: it is another chain, or went back further than counts as final."""


def next_move(batch: BatchRow, pool: Pool, *, test_money: bool) -> Move:
    """Of the first batch that is not known to be posted."""
    if pool.epoch >= batch.epoch:
        return Move.WAIT
    if pool.epoch + 1 < batch.epoch:
        return Move.WANT_EARLIER
    if batch.promised_micro <= pool.funded:
        return Move.POST
    return Move.COVER if test_money else Move.WANT_FUNDS


@dataclass(slots=True)
class RootPoster:
    client: ChainClient
    store: ChainStore
    payouts: PayoutStore
    settlement: Contract
    operator: str
    test_money: bool
    _told: tuple[int, Move] | None = field(default=None, init=False)

    async def step(self) -> None:
        batch = await self.payouts.first_unposted()
        if batch is None or await self.store.is_under_way(f"payout:{batch.epoch}:"):
            return
        pool = await credit_pool(self.client, self.settlement)
        match move := next_move(batch, pool, test_money=self.test_money):
            case Move.WAIT:
                pass
            case Move.POST:
                await self._post(batch, pool)
            case Move.COVER:
                await self._cover(batch, pool)
            case Move.WANT_FUNDS | Move.WANT_EARLIER:
                self._tell_once(batch, move)
            case _ as never:
                assert_never(never)

    async def _post(self, batch: BatchRow, pool: Pool) -> None:
        """Named by the funds too: if they shrink before it is mined it is refused, and tried again when they change."""
        args = (CREDITS, batch.epoch, batch.root, batch.leaves, batch.promised_micro)
        call = self.settlement.call("post_root", *args)
        business_id = f"payout:{batch.epoch}:root:{pool.funded}"
        await decide(self.store, call, business_id=business_id, sender=self.operator)

    async def _cover(self, batch: BatchRow, pool: Pool) -> None:
        token = await token_of(self.client, self.settlement)
        most = int(await view(self.client, token, "FAUCET_MAX"))
        units = min(batch.promised_micro - pool.funded, most)
        calls = [
            ("faucet", token.call("faucet", self.operator, units)),
            ("approve", token.call("approve", self.settlement.address, units)),
            ("fund", self.settlement.call("fund", CREDITS, units)),
        ]
        for name, call in calls:
            business_id = f"payout:{batch.epoch}:cover:{pool.funded}:{name}"
            await decide(self.store, call, business_id=business_id, sender=self.operator)

    def _tell_once(self, batch: BatchRow, move: Move) -> None:
        if self._told != (batch.epoch, move):
            self._told = (batch.epoch, move)
            _log.warning("payout_root_waits", epoch=batch.epoch, why=move.value)
