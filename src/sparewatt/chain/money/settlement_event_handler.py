"""Final events of the settlement contract, put into the books: deposits, posted roots, claims. Each once, however often
it is handed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.chain.event_delivery import business_id
from sparewatt.chain.model import hex_of
from sparewatt.chain.money.settlement_contract import CREDIT_POOL_ID
from sparewatt.core.clock import Clock
from sparewatt.core.limits import DEPOSIT_PARTS_MAX, TRANSFER_NANO_MAX
from sparewatt.core.log import Logger
from sparewatt.core.money import Nano
from sparewatt.ledger.credits import deposit_transfer
from sparewatt.ledger.deposit_adapters import CHAIN_ADAPTER, ConfirmedDeposit
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.database import Database

_log = Logger("sparewatt.chain")


def split_deposit(event_id: str, nano: int) -> list[ConfirmedDeposit]:
    """A deposit as sums that may be moved at once, each under a name of its own; nearly always it is one."""
    starts = range(0, nano, TRANSFER_NANO_MAX)
    return [
        ConfirmedDeposit(f"{event_id}/{number}" if number else event_id, Nano(min(TRANSFER_NANO_MAX, nano - start)))
        for number, start in enumerate(starts)
    ]


@dataclass(frozen=True, slots=True)
class SettlementEventHandler:
    database: Database
    clock: Clock

    async def handle_deposit(self, event: ChainEvent) -> None:
        """What is not posted (nobody's address, or too much) stays in the contract, for its depositor to take back."""
        event_id, nano = business_id(event), event.args["amount"] * NANO_PER_MICRO
        account_id = await self.database.accounts.account_at_address(event.args["account"])
        if account_id is None or nano > DEPOSIT_PARTS_MAX * TRANSFER_NANO_MAX:
            _log.warning("deposit_not_posted", event_id=event_id, account=account_id)
            return
        for arrival in split_deposit(event_id, nano):
            transfer = deposit_transfer(account_id, arrival, adapter=CHAIN_ADAPTER, unix_s=self.clock.unix_s())
            if await self.database.ledger.post_transfer(transfer):
                _log.info("deposit_posted", event_id=arrival.reference, account=account_id)

    async def handle_payout_event(self, event: ChainEvent) -> None:
        if event.args["pool"] != CREDIT_POOL_ID:
            return
        if event.event == "RootPosted":
            await self._handle_root_posted(event)
        else:
            await self.database.payouts.mark_claimed(event.args["account"], claimed_micro=event.args["earned"])

    async def _handle_root_posted(self, event: ChainEvent) -> None:
        epoch = event.args["epoch"]
        batch = await self.database.payouts.find_batch(epoch)
        if batch is None or hex_of(batch.root) != event.args["root"]:
            _log.warning("root_is_not_ours", epoch=epoch)  # somebody else has the operator's key, or another's database
            return
        await self.database.payouts.mark_posted(epoch, tx=hex_of(event.tx_hash), unix_s=self.clock.unix_s())
