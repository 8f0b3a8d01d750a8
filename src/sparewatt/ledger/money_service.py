"""Credits, payouts and deposit adapters of one network, with the chores that gateways run for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparewatt.core.errors import NoChain
from sparewatt.core.ids import AccountId
from sparewatt.core.log import Logger
from sparewatt.core.money import format_usd
from sparewatt.ledger.chain_credits import ChainCreditService
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.deposit_adapters import ChainPaymentAdapter, DepositAdapter
from sparewatt.ledger.payouts import PayoutService
from sparewatt.ledger.uptime_fund import UptimeFund
from sparewatt.store.ledger import LedgerStore

_log = Logger("sparewatt.gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyService:
    books: LedgerStore
    credits: CreditService
    settlement: PayoutService
    uptime_fund: UptimeFund
    adapters: Mapping[str, DepositAdapter]
    """By name."""
    on_chain: ChainPaymentAdapter | None
    """None if the network has no chain."""
    chain_credits: ChainCreditService | None
    """Likewise."""
    payout_s: float
    """The time between two payout batches."""

    async def claim(self, account_id: AccountId) -> None:
        """Claim everything that the account has earned on the chain. Raises NoChain without one."""
        if self.on_chain is None:
            raise NoChain("A claim of what was earned")
        await self.on_chain.claim(account_id)

    async def run_chores(self) -> None:
        """Expire credits, redeem promo income that the treasury covers, and make the next payout batch if it is due."""
        expired, redeemed = await self.credits.expire(), await self.credits.redeem()
        batch = await self.settlement.make_batch(quiet_s=self.payout_s)
        await self.books.forget_grant_counts()
        if expired or redeemed:
            _log.info("credit_chores_done", expired_usd=format_usd(expired), redeemed_usd=format_usd(redeemed))
        if batch is not None:
            _log.info("payout_batch_made", epoch=batch.epoch, leaves=batch.leaves, added_micro=batch.added_micro)
