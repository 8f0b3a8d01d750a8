"""Final events of the settlement contract, put into the books: deposits, posted roots, claims. Each once, however often
it is handed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.chain.delivery import business_id
from sparewatt.chain.model import hex_of
from sparewatt.chain.settlement import CREDITS
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField
from sparewatt.core.log import Log
from sparewatt.core.money import Nano
from sparewatt.ledger.credits import deposit_transfer
from sparewatt.ledger.deposits import CHAIN, Arrival
from sparewatt.ledger.settlement import NANO_PER_MICRO
from sparewatt.protocol.chain import ChainEvent
from sparewatt.store.database import Database

_log = Log("sparewatt.chain")


@dataclass(frozen=True, slots=True)
class Booking:
    database: Database
    clock: Clock

    async def credit(self, event: ChainEvent) -> None:
        """A deposit for an address that is nobody's stays where it is: whoever made it can take it back there."""
        account_id = await self.database.people.account_at(event.args["account"])
        arrival = Arrival(business_id(event), Nano(event.args["amount"] * NANO_PER_MICRO))
        if account_id is None:
            _log.warning("deposit_of_nobody", event_id=arrival.reference)
            return
        try:
            transfer = deposit_transfer(account_id, arrival, adapter=CHAIN, unix_s=self.clock.unix_s())
        except InvalidField:
            _log.warning("deposit_too_large", event_id=arrival.reference, account=account_id)
            return
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
