"""Final events of the settlement contract, put into the books: deposits, posted roots, claims. Each once, however often
it is handed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.chain.delivery import business_id
from sparewatt.chain.model import hex_of
from sparewatt.chain.settlement import CREDITS
from sparewatt.core.clock import Clock
from sparewatt.core.limits import DEPOSIT_PARTS_MAX, TRANSFER_NANO_MAX
from sparewatt.core.log import Log
from sparewatt.core.money import Nano
from sparewatt.ledger.credits import deposit_transfer
from sparewatt.ledger.deposits import CHAIN, Arrival
from sparewatt.ledger.settlement import NANO_PER_MICRO
from sparewatt.protocol.chain import ChainEvent
from sparewatt.store.database import Database

_log = Log("sparewatt.chain")


def parts_of(event_id: str, nano: int) -> list[Arrival]:
    """A deposit as sums that may be moved at once, each under a name of its own; nearly always it is one."""
    starts = range(0, nano, TRANSFER_NANO_MAX)
    return [
        Arrival(f"{event_id}/{number}" if number else event_id, Nano(min(TRANSFER_NANO_MAX, nano - start)))
        for number, start in enumerate(starts)
    ]


@dataclass(frozen=True, slots=True)
class Booking:
    database: Database
    clock: Clock

    async def credit(self, event: ChainEvent) -> None:
        """What is not posted (nobody's address, or too much) stays in the contract, for its depositor to take back."""
        event_id, nano = business_id(event), event.args["amount"] * NANO_PER_MICRO
        account_id = await self.database.people.account_at(event.args["account"])
        if account_id is None or nano > DEPOSIT_PARTS_MAX * TRANSFER_NANO_MAX:
            _log.warning("deposit_not_posted", event_id=event_id, account=account_id)
            return
        for arrival in parts_of(event_id, nano):
            transfer = deposit_transfer(account_id, arrival, adapter=CHAIN, unix_s=self.clock.unix_s())
            if await self.database.books.post_transfer(transfer):
                _log.info("deposit_posted", event_id=arrival.reference, account=account_id)

    async def note(self, event: ChainEvent) -> None:
        if event.args["pool"] != CREDITS:
            return
        if event.event == "RootPosted":
            await self._note_root(event)
        else:
            await self.database.payouts.mark_claimed(event.args["account"], claimed_micro=event.args["earned"])

    async def _note_root(self, event: ChainEvent) -> None:
        epoch = event.args["epoch"]
        batch = await self.database.payouts.find_batch(epoch)
        if batch is None or hex_of(batch.root) != event.args["root"]:
            _log.warning("root_is_not_ours", epoch=epoch)  # somebody else has the operator's key, or another's database
            return
        await self.database.payouts.mark_posted(epoch, tx=hex_of(event.tx_hash), unix_s=self.clock.unix_s())
