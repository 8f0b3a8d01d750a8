"""Posts the Merkle roots of payout batches to the settlement contract, in order, each within what the pool holds.

There is one poster for each pool: credits, and era rewards. A batch that promises more waits for deposits. On a chain
of test money the faucet covers the rest, since credits were given away there as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from sparewatt.chain.client import ChainClient
from sparewatt.chain.money.pool_cover import funding_calls
from sparewatt.chain.money.settlement_contract import SettlementPool, call_view, settlement_pool
from sparewatt.chain.outbox import enqueue
from sparewatt.core.log import Logger
from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import ContractCall
from sparewatt.store.chain import ChainStore
from sparewatt.store.payouts import PayoutBatchRow, PayoutStore

_log = Logger("sparewatt.chain")


class RootAction(Enum):
    WAIT = "wait"
    """The chain has it; its event is not final yet."""
    POST = "post"
    COVER = "cover"
    WANT_FUNDS = "want_funds"
    UNDER_DELAY = "under_delay"
    """The root before it is not ripe yet: a pool has one such root at a time."""
    STRUCK = "struck"
    """A guardian made its root void: a person decides."""
    STOPPED = "stopped"
    """A guardian stopped the pool."""
    WANT_EARLIER = "want_earlier"
    """The chain lacks a batch that was posted: it is another chain, or a reorg was deeper than what counts as final."""


def next_root_action(
    batch: PayoutBatchRow, pool: SettlementPool, *, test_money: bool, is_stopped: bool = False, is_delayed: bool = False
) -> RootAction:
    """For the first batch that is not known to be posted. `is_delayed`: the pool's last root is not ripe."""
    hindrances = {
        RootAction.STRUCK: batch.is_struck,
        RootAction.WAIT: pool.epoch >= batch.epoch,
        RootAction.STOPPED: is_stopped,
        RootAction.UNDER_DELAY: is_delayed,
        RootAction.WANT_EARLIER: pool.epoch + 1 < batch.epoch,
    }
    for action, is_so in hindrances.items():
        if is_so:
            return action
    if batch.promised_micro <= pool.funded:
        return RootAction.POST
    return RootAction.COVER if test_money else RootAction.WANT_FUNDS


@dataclass(slots=True)
class RootPoster:
    client: ChainClient
    store: ChainStore
    payouts: PayoutStore
    settlement: Contract
    operator: str
    test_money: bool
    prefix: str = "payout"
    """Of its ids in the outbox: another one for each pool."""
    _warned: tuple[int, RootAction] | None = field(default=None, init=False)

    async def step(self) -> None:
        if await self.payouts.has_batch_under_delay():
            await self.payouts.mark_ripe(chain_unix_s=(await self.client.head()).unix_s)
        batch = await self.payouts.first_unposted_batch()
        if batch is None or await self.store.has_open(f"{self.prefix}:{batch.epoch}:"):
            return
        pool = await settlement_pool(self.client, self.settlement, self._pool_id)
        stopped = bool(await call_view(self.client, self.settlement, "stopped", self._pool_id))
        delayed = await self._is_delayed(pool)
        action = next_root_action(batch, pool, test_money=self.test_money, is_stopped=stopped, is_delayed=delayed)
        match action:
            case RootAction.WAIT | RootAction.UNDER_DELAY:
                pass
            case RootAction.POST:
                await self._post(batch, pool)
            case RootAction.COVER:
                await self._cover(batch, pool)
            case RootAction.WANT_FUNDS | RootAction.WANT_EARLIER | RootAction.STRUCK | RootAction.STOPPED:
                self._warn_once(batch, action)
            case _ as never:
                assert_never(never)

    @property
    def _pool_id(self) -> int:
        return self.payouts.pool_id

    async def _is_delayed(self, pool: SettlementPool) -> bool:
        if not pool.epoch:
            return False
        _, __, ripe_at = await call_view(self.client, self.settlement, "root_at", self._pool_id, pool.epoch)
        return (await self.client.head()).unix_s < int(ripe_at)

    async def _post(self, batch: PayoutBatchRow, pool: SettlementPool) -> None:
        """The id names the funds too: if they shrink before it is mined it is refused, and retried when they change.

        It also tells a batch that was made anew, or whose root was struck, from what was posted before.
        """
        version = f"{int(batch.unix_s * 1_000)}.{batch.strikes}"
        args = (self._pool_id, batch.epoch, batch.root, batch.leaves, batch.promised_micro)
        await self._enqueue(
            f"{self.prefix}:{batch.epoch}:{version}:root:{pool.funded}", self.settlement.encode_call("post_root", *args)
        )

    async def _cover(self, batch: PayoutBatchRow, pool: SettlementPool) -> None:
        lacking = batch.promised_micro - pool.funded
        calls = await funding_calls(
            self.client, self.settlement, operator=self.operator, units=lacking, pool_id=self._pool_id
        )
        for name, call in calls:
            await self._enqueue(f"{self.prefix}:{batch.epoch}:cover:{pool.funded}:{name}", call)

    async def _enqueue(self, business_id: str, call: ContractCall) -> None:
        await enqueue(self.store, call, business_id=business_id, sender=self.operator)

    def _warn_once(self, batch: PayoutBatchRow, action: RootAction) -> None:
        if self._warned != (batch.epoch, action):
            self._warned = (batch.epoch, action)
            _log.warning("payout_root_waits", pool=self._pool_id, epoch=batch.epoch, why=action.value)
