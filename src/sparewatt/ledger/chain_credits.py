"""An account's money on the chain, as gateways see and move it: holds for requests, exits, what contracts owe.

A gateway only holds credits and inserts chain requests; the chain's process does the rest, and final events post it.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainUnavailable, IdReused, InsufficientCredits, InvalidField, UnprocessableContent
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano, format_usd
from sparewatt.ledger.chain_request_client import ChainRequestClient
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.ledger.pockets import NOBODY, exit_hold_id
from sparewatt.protocol.address_proof import address_proof_text, is_address_proof
from sparewatt.protocol.api.ledger import ChainAudit
from sparewatt.store.accounts import AccountRow
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState, NewChainRequest
from sparewatt.store.credit_holds import EXIT, REQUEST, CreditHoldRow
from sparewatt.store.database import Database
from sparewatt.store.pockets import Pocket
from sparewatt.store.request_params import ALL_CONTRACTS, ChainRequestKind, ExitParams, WithdrawParams

AUDIT_WAIT_S = 20.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ChainHoldings:
    """What an account has on the chain, in micro-USD, and what is held of its credits, in nano-USD."""

    address: str | None
    is_held: bool
    """Whether the network has the key of its address."""
    wallet: int
    escrow: int
    bond: int
    owed: int
    held_for_requests: Nano
    held_for_exits: Nano
    exit_ready_at: int | None
    """When the exit is paid, in chain time; None if there is none, or the contract does not have it yet."""


@dataclass(frozen=True, slots=True)
class ChainCreditService:
    database: Database
    clock: Clock

    @property
    def _requests(self) -> ChainRequestClient:
        return ChainRequestClient(self.database.chain_requests, self.clock)

    # reads

    async def holdings(self, account_id: AccountId) -> ChainHoldings:
        account = await self.database.accounts.find_account(account_id)
        micro = await self.database.pockets.micro_of(account_id)
        held = await self.database.credit_holds.held_by(account_id)
        address = None if account is None else account.chain_address
        owner = (await self.database.pockets.owners([address])).get(address) if address else None
        return ChainHoldings(
            address=address,
            is_held=owner is not None and owner.is_held,
            wallet=micro.get(Pocket.WALLET, 0),
            escrow=micro.get(Pocket.ESCROW, 0),
            bond=micro.get(Pocket.BOND, 0),
            owed=micro.get(Pocket.OWED, 0),
            held_for_requests=held.get(REQUEST, Nano(0)),
            held_for_exits=held.get(EXIT, Nano(0)),
            exit_ready_at=await self.database.exits.ready_at_of(account_id) if EXIT in held else None,
        )

    async def audit(self) -> ChainAudit | None:
        """Have the chain's process compare the books with the chain. None if it does not answer in time."""
        if await self.database.chain.index() is None:
            return None
        number = await self.database.chain_audit.ask()
        deadline_s = self.clock.now_s() + AUDIT_WAIT_S
        while self.clock.now_s() < deadline_s:
            row = await self.database.chain_audit.read()
            if row.answered >= number and row.report is not None:
                return msgspec.json.decode(row.report, type=ChainAudit)
            await sleep_until(self.clock, self.clock.now_s() + POLL_S)
        return None

    # money out

    async def withdraw(
        self, account_id: AccountId, nano: Nano, *, receiver: str | None, reference: str
    ) -> ChainRequestRow:
        """Ask for an exit of paid credits that were deposited on the chain, by a key that the network holds.

        Without a receiver an account that has set its own address is paid there, not at the one that it gave up.
        Returns once the contract has it; its payment takes the contract's time. Raises InsufficientCredits,
        ContractsOutdated, or InvalidField for a receiver who could never use the tokens.
        """
        await self._requests.require_working_chain()  # before anything is held, which nobody would give back
        await self._check_receiver(receiver)
        account = await self._account(account_id)
        address = await self._held_address(account)
        if receiver is None and account.chain_address != address:
            receiver = account.chain_address
        micro = _whole_micro(nano)
        new = NewChainRequest(
            f"exit:{account_id}:{reference}", ChainRequestKind.EXIT, account_id, address, micro, ExitParams(receiver)
        )
        known = await self.database.chain_requests.find(new.id)
        if known is None:
            await self._hold_exit(new, nano)
        elif (known.micro, known.params) != (new.micro, new.params):
            raise IdReused("This id was used before, for something else, so nothing was done.", param="id")
        await self._requests.submit(new)
        row = await self._until_asked(new.id)
        if row.state is ChainRequestState.FAILED:
            if known is None:
                await self.database.credit_holds.release(exit_hold_id(address))
            raise UnprocessableContent(f"Nothing was withdrawn: {row.reason}")
        return row

    async def collect(self, account_id: AccountId, *, reference: str) -> ChainRequestRow:
        """Bring what contracts owe to the account's address, and the tokens there, back to its credits."""
        account = await self._account(account_id)
        address = await self._held_address(account)
        params = WithdrawParams(ALL_CONTRACTS)
        new = NewChainRequest(
            f"withdraw:{account_id}:{reference}", ChainRequestKind.WITHDRAW, account_id, address, params=params
        )
        await self._requests.submit(new)
        row = await self._requests.wait(new.id, hint="It goes on by itself; look again later.")
        if row.state is ChainRequestState.FAILED:
            raise UnprocessableContent(f"Nothing was brought back: {row.reason}")
        return row

    async def set_own_address(self, account_id: AccountId, own: str, signature: bytes) -> AccountRow:
        """Replace the held address by one of the account's own, which has signed for it. Raises InvalidField.

        Refused while leases, bonds or an exit stand at the held address, or tokens that could be collected first.
        """
        account = await self._account(account_id)
        index = await self.database.chain.index()
        if index is None:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")
        if not is_address_proof(own, account_id, chain_id=index.chain_id, signature=signature):
            text = address_proof_text(own, account_id, chain_id=index.chain_id)
            raise InvalidField(f"Sign this text with that address's wallet, and send the signature: {text!r}")
        if account.chain_address is None or not (await self.holdings(account_id)).is_held:
            raise InvalidField("This account has an address of its own already. It cannot be replaced by another.")
        await self._refuse_if_busy(account_id)
        if await self.database.pockets.owners([own]):
            raise InvalidField("That address belongs to an account of this network already.", param="address")
        if await self.database.exits.deposited_at(own):
            raise UnprocessableContent(
                "Money was deposited for that address before it belonged to an account, so it is in nobody's credits. "
                "Take it out with that wallet first ('request_exit' of the settlement contract), or use another one."
            )
        await self.database.accounts.set_own_address(account_id, held=account.chain_address, own=own)
        return await self._account(account_id)

    async def text_to_sign(self, account_id: AccountId, own: str) -> str:
        """What an address signs to become the account's own."""
        index = await self.database.chain.index()
        if index is None:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")
        return address_proof_text(own, account_id, chain_id=index.chain_id)

    async def _refuse_if_busy(self, account_id: AccountId) -> None:
        holdings = await self.holdings(account_id)
        standing = {"leases": holdings.escrow, "bonds": holdings.bond}
        if names := [name for name, micro in standing.items() if micro]:
            raise UnprocessableContent(f"Money stands in {' and '.join(names)} of the held address: end them first.")
        if holdings.wallet or holdings.owed:
            raise UnprocessableContent(
                "Tokens are left at the held address. 'sparewatt credits collect' brings them back."
            )
        if holdings.held_for_exits or holdings.held_for_requests:
            raise UnprocessableContent("An exit or a request is under way. Wait until it is done.")

    async def _account(self, account_id: AccountId) -> AccountRow:
        row = await self.database.accounts.find_account(account_id)
        if row is None:
            raise InvalidField("There is no such account.")
        return row

    async def _held_address(self, account: AccountRow) -> str:
        """Its address, or the one it had before it set its own. Raises InvalidField."""
        if account.chain_address is not None:
            owner = (await self.database.pockets.owners([account.chain_address])).get(account.chain_address)
            if owner is not None and owner.is_held:
                return account.chain_address
        former = await self.database.accounts.former_addresses(account.id)
        if not former:
            raise InvalidField("The network has no key of this account's address: use your wallet with the contracts.")
        return former[0]

    async def _check_receiver(self, receiver: str | None) -> None:
        index = await self.database.chain.index()
        contracts = () if index is None else [address.lower() for address in index.contracts.values()]
        if receiver == NOBODY or receiver in contracts:
            raise InvalidField(f"Tokens that are sent to {receiver} are lost: name an address of yours.", param="to")

    async def _hold_exit(self, new: NewChainRequest, nano: Nano) -> None:
        hold = CreditHoldRow(exit_hold_id(new.address), EXIT, new.account_id, new.address)
        if await self.database.credit_holds.find(hold.id) is not None:
            raise UnprocessableContent("A withdrawal is under way already. 'sparewatt credits' shows it; wait for it.")
        if await self.database.credit_holds.hold(hold, with_promo=False, nano=nano) is None:
            raise InsufficientCredits(
                f"You do not have ${format_usd(nano)} of paid credits that nobody has reserved. Free ones stay here."
            )

    async def _until_asked(self, request_id: str) -> ChainRequestRow:
        """Until the contract has it, which is long before it pays."""
        hint = "The withdrawal goes on by itself; 'sparewatt credits' shows it."
        return await self._requests.wait(
            request_id, hint=hint, until=lambda row: row.state is ChainRequestState.FAILED or "ready_at" in row.result
        )


def _whole_micro(nano: Nano) -> int:
    if nano % NANO_PER_MICRO:
        raise InvalidField("Money on the chain has six decimals: round the amount.", param="usd")
    return nano // NANO_PER_MICRO
