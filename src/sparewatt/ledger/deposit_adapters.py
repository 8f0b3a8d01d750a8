"""Deposit adapters: each confirms money that came in by one rail (test money, the chain).

What is posted is what the adapter confirms, never what a client claims. The chain's adapter also claims earnings. It
only inserts a chain request and waits until it is finished; the chain's process does the work, whether anyone waits or
not, and posts deposits from their final events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, InvalidField, NoChain, UnprocessableContent
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.chain_request_client import ChainRequestClient
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState, NewChainRequest
from sparewatt.store.database import Database
from sparewatt.store.payouts import REWARD_POOL_ID, ClaimablePayoutRow
from sparewatt.store.request_params import ChainRequestKind, ClaimParams

TEST_ADAPTER = "test"
CHAIN_ADAPTER = "chain"
CLAIM_ADDRESSES_MAX = 20
"""Addresses of one account that are claimed at once; nearly all accounts have one."""


@dataclass(frozen=True, slots=True)
class ConfirmedDeposit:
    reference: str
    """An idempotency key: the same reference is never posted twice."""
    nano: Nano
    posted: bool | None = None
    """None: post it. For a rail that posts deposits itself, as the chain's does: whether this call caused it."""


class DepositAdapter(Protocol):
    async def confirm(self, account: AccountId, *, reference: str, nano: Nano | None) -> ConfirmedDeposit:
        """What came in under this reference. Raises InvalidField if nothing did."""
        ...


class TestMoneyAdapter:
    """Gives money away, on networks for trying out."""

    __test__ = False  # not a test class, whatever pytest makes of its name

    async def confirm(self, account: AccountId, *, reference: str, nano: Nano | None) -> ConfirmedDeposit:
        return ConfirmedDeposit(f"{account}:{reference}", _required(nano))


def deposit_request(account_id: AccountId, *, address: str, reference: str, nano: Nano) -> NewChainRequest:
    """Raises InvalidField for an amount with more decimals than the token has."""
    if nano % NANO_PER_MICRO:
        raise InvalidField("Money on the chain has six decimals: round the amount.", param="usd")
    request_id = f"deposit:{account_id}:{reference}"
    return NewChainRequest(request_id, ChainRequestKind.DEPOSIT, account_id, address, nano // NANO_PER_MICRO)


def claim_request(account_id: AccountId, row: ClaimablePayoutRow) -> NewChainRequest:
    """Its id names the sum that the address will have claimed in all: a second claim of it is the same request."""
    request_id, micro = f"claim:{row.address}:{row.earned_micro}", row.earned_micro - row.claimed_micro
    return NewChainRequest(request_id, ChainRequestKind.CLAIM, account_id, row.address, micro, ClaimParams(row.epoch))


def reward_claim_request(account_id: AccountId, row: ClaimablePayoutRow, *, to_bond: bool) -> NewChainRequest:
    """Likewise. What goes to a provider's address is for its bond."""
    request_id, micro = f"claim:reward:{row.address}:{row.earned_micro}", row.earned_micro - row.claimed_micro
    params = ClaimParams(row.epoch, REWARD_POOL_ID, to_bond)
    return NewChainRequest(request_id, ChainRequestKind.CLAIM, account_id, row.address, micro, params)


@dataclass(frozen=True, slots=True)
class ChainPaymentAdapter:
    """Deposits out of an account's chain address, and claims of its earnings."""

    database: Database
    clock: Clock

    @property
    def _requests(self) -> ChainRequestClient:
        return ChainRequestClient(self.database.chain_requests, self.clock)

    async def confirm(self, account: AccountId, *, reference: str, nano: Nano | None) -> ConfirmedDeposit:
        """Request a deposit, and wait until it is final."""
        nano = _required(nano)
        await self._require_chain()
        address = await self._address_of(account)
        new = deposit_request(account, address=address, reference=reference, nano=nano)
        is_new, row = await self._requests.submit(new)
        if row.micro != new.micro:
            raise InvalidField("This id was used before, for another amount.", param="id")
        row = await self._requests.wait(
            new.id, hint=f"The deposit {reference!r} goes on by itself; ask again by that id."
        )
        if row.state is ChainRequestState.FAILED:
            raise UnprocessableContent(f"Nothing was deposited: {row.reason} Ask again without an id, or with another.")
        return ConfirmedDeposit(row.id, nano, posted=is_new)

    async def claim(self, account: AccountId) -> Sequence[ChainRequestRow]:
        """Claim all that the account has on the chain, rewards included. Returns the finished requests."""
        await self._require_chain()
        rows = await self.database.payouts.list_claimable(account, limit=CLAIM_ADDRESSES_MAX)
        rewards = await self.database.reward_payouts.list_claimable(account, limit=CLAIM_ADDRESSES_MAX)
        providers = {row.address for row in await self.database.providers.list_of(account) if row.is_held}
        requests = [
            *(claim_request(account, row) for row in rows),
            *(reward_claim_request(account, row, to_bond=row.address in providers) for row in rewards),
        ]
        for new in requests:
            await self._requests.submit(new)
        hint = "The claim goes on by itself; look again later."
        return [await self._requests.wait(new.id, hint=hint) for new in requests]

    async def _require_chain(self) -> None:
        problem = await self.database.chain.problem()
        if problem is not None:
            raise ContractsOutdated(problem)
        if await self.database.chain.index() is None:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")

    async def _address_of(self, account: AccountId) -> str:
        row = await self.database.accounts.find_account(account)
        if row is None or row.chain_address is None:
            raise InvalidField("This account has no address on the chain.", param="adapter")
        return row.chain_address


def _required(nano: Nano | None) -> Nano:
    if nano is None:
        raise InvalidField("Say how much: 'usd' or 'nano'.", param="usd")
    return nano


def adapters_for(*, development: bool, chain: DepositAdapter | None = None) -> dict[str, DepositAdapter]:
    test: dict[str, DepositAdapter] = {TEST_ADAPTER: TestMoneyAdapter()} if development else {}
    return test | ({CHAIN_ADAPTER: chain} if chain is not None else {})


def adapter_named(name: str, adapters: Mapping[str, DepositAdapter]) -> DepositAdapter:
    """Raises InvalidField with the names of those that exist, NoChain for the chain's on a network without one."""
    if name == CHAIN_ADAPTER and name not in adapters:
        raise NoChain("A deposit by chain")
    if name not in adapters:
        known = ", ".join(sorted(adapters)) or "none so far; ask its operator for credits"
        raise InvalidField(f"This network takes no deposits by {name[:40]!r}. Known: {known}.", param="adapter")
    return adapters[name]
