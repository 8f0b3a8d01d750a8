"""Brings what the escrow owes to accounts back into their credits, without anyone asking: deposits of ended orders.

A renter's next order may count on what is owed, so an address with a request under way is left alone, and while a
refund is under way new orders do not count on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.log import Logger
from sparewatt.store.chain_requests import ChainRequestStore, NewChainRequest
from sparewatt.store.pockets import PocketStore
from sparewatt.store.request_params import ChainRequestKind, WithdrawParams

_log = Logger("sparewatt.chain")
REFUNDS_PER_STEP = 16
ESCROW = "escrow"


@dataclass(frozen=True, slots=True)
class RefundChore:
    pockets: PocketStore
    requests: ChainRequestStore

    async def step(self) -> bool:
        """True if a request was made."""
        made = False
        for owed in await self.pockets.list_refunds(limit=REFUNDS_PER_STEP):
            number = await self.requests.count_finished(owed.address, ChainRequestKind.WITHDRAW)
            new = NewChainRequest(
                f"refund:{owed.address}:{number}",
                ChainRequestKind.WITHDRAW,
                owed.account_id,
                owed.address,
                params=WithdrawParams(ESCROW, only_owed=True),
            )
            if await self.requests.insert(new):
                _log.info("refund_asked", address=owed.address, micro=owed.micro)
                made = True
        return made
