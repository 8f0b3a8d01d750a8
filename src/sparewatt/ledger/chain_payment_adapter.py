"""What a gateway asks of the chain for an account: a deposit out of its address, and its earnings.

It writes a request and waits for its end; the chain's process does the rest, also when nobody waits any more. Deposits
are posted there too, from the final event: what the asker says moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainUnavailable, InvalidField, RateLimited, UnprocessableContent
from sparewatt.core.ids import AccountId
from sparewatt.core.limits import CHAIN_REQUEST_WAIT_S, CLAIM_ADDRESSES_MAX
from sparewatt.core.money import Nano
from sparewatt.ledger.deposit_adapters import ConfirmedDeposit
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.store.chain_requests import ChainRequestKind, ChainRequestRow, ChainRequestState, NewChainRequest
from sparewatt.store.database import Database
from sparewatt.store.payouts import ClaimablePayoutRow

POLL_S = 0.1


def deposit_request(account_id: AccountId, *, address: str, reference: str, nano: Nano) -> NewChainRequest:
    """Raises InvalidField for an amount that the chain cannot hold."""
    if nano % NANO_PER_MICRO:
        raise InvalidField("Money on the chain has six decimals: round the amount.", param="usd")
    request_id = f"deposit:{account_id}:{reference}"
    return NewChainRequest(request_id, ChainRequestKind.DEPOSIT, account_id, address, nano // NANO_PER_MICRO)


def claim_request(account_id: AccountId, row: ClaimablePayoutRow) -> NewChainRequest:
    """Named by the sum that the address has then fetched in all, so that asking twice is asking once."""
    request_id, micro = f"claim:{row.address}:{row.earned_micro}", row.earned_micro - row.claimed_micro
    return NewChainRequest(request_id, ChainRequestKind.CLAIM, account_id, row.address, micro, row.epoch)


@dataclass(frozen=True, slots=True)
class ChainPaymentAdapter:
    """The adapter of deposits by chain, and claims."""

    database: Database
    clock: Clock

    async def confirm(self, account: AccountId, *, reference: str, nano: Nano | None) -> ConfirmedDeposit:
        """Have it deposited, and wait until that is final."""
        if nano is None:
            raise InvalidField("Say how much: 'usd' or 'nano'.", param="usd")
        await self._require_chain()
        address = await self._address_of(account)
        wanted = deposit_request(account, address=address, reference=reference, nano=nano)
        is_new, found = await self._submit(wanted)
        if found.micro != wanted.micro:
            raise InvalidField("This id was used before, for another amount.", param="id")
        ended = await self._wait_until_ended(
            wanted.id, hint=f"The deposit {reference!r} goes on by itself; ask again by that id."
        )
        if ended.state is ChainRequestState.FAILED:
            raise UnprocessableContent(
                f"Nothing was deposited: {ended.reason} Ask again without an id, or with another."
            )
        return ConfirmedDeposit(ended.id, nano, posted=is_new)

    async def claim(self, account: AccountId) -> Sequence[ChainRequestRow]:
        """Everything that the account has on the chain and did not fetch yet, as requests that have ended."""
        await self._require_chain()
        rows = await self.database.payouts.list_claimable(account, limit=CLAIM_ADDRESSES_MAX)
        wanted = [claim_request(account, row) for row in rows]
        for each in wanted:
            await self._submit(each)
        return [
            await self._wait_until_ended(each.id, hint="The claim goes on by itself; look again later.")
            for each in wanted
        ]

    async def _require_chain(self) -> None:
        if await self.database.chain.index() is None:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")

    async def _address_of(self, account: AccountId) -> str:
        found = await self.database.accounts.find_account(account)
        if found is None or found.chain_address is None:
            raise InvalidField("This account has no address on the chain.", param="adapter")
        return found.chain_address

    async def _submit(self, wanted: NewChainRequest) -> tuple[bool, ChainRequestRow]:
        """Whether it is new, and what stands under its name. Raises RateLimited."""
        is_new = await self.database.chain_requests.insert(wanted)
        found = await self.database.chain_requests.find(wanted.id)
        if found is None:
            raise RateLimited("This account has too much under way on the chain. Wait until some of it is done.")
        return is_new, found

    async def _wait_until_ended(self, request_id: str, *, hint: str) -> ChainRequestRow:
        deadline_s = self.clock.now_s() + CHAIN_REQUEST_WAIT_S
        while self.clock.now_s() < deadline_s:
            row = await self.database.chain_requests.find(request_id)
            if row is not None and _has_ended(row.state):
                return row
            await sleep_until(self.clock, self.clock.now_s() + POLL_S)
        raise ChainUnavailable(f"The chain is slow. {hint}", retry_after_s=POLL_S)


def _has_ended(state: ChainRequestState) -> bool:
    match state:
        case ChainRequestState.ASKED | ChainRequestState.DECIDED:
            return False
        case ChainRequestState.DONE | ChainRequestState.FAILED:
            return True
        case _ as never:
            assert_never(never)
