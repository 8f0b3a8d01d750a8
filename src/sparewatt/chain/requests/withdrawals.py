"""Requests of money that leaves the contracts: WITHDRAW brings what they owe back to credits, EXIT pays credits out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sparewatt.chain.money.settlement_contract import SETTLEMENT
from sparewatt.chain.outbox import enqueue
from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.handler import CallBatch, NamedCall, RequestHandler
from sparewatt.chain.requests.providers import provider_key
from sparewatt.core.errors import InvalidField
from sparewatt.evm.model import ContractCall
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.meta_transactions import Deposit, RequestExit, Withdraw
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain import OutboxState
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.request_params import ALL_CONTRACTS, ChainRequestKind

ESCROW = "escrow"
PAYING_CONTRACTS = (ESCROW, "stake_registry", "dispute_book")
PROVIDERS_PAID_MAX = 16
"""Providers whose pay one request brings back; the next request takes the others."""
EXIT_POLL_S = 5.0
"""Between two looks at an exit that is not paid; it takes days on a public network."""

NOTHING_DEPOSITED = (
    "only what you deposited on this chain and have not spent can leave by it, and there is none. "
    "'sparewatt credits deposit USD --by chain' deposits there."
)


@dataclass(frozen=True, slots=True)
class WithdrawHandler(RequestHandler):
    """Step 0 withdraws what contracts owe to the address, step 1 deposits the tokens there into credits.

    What the escrow owes the account's providers comes to the same address, unless a receiver is named.
    """

    context: ChainRequestContext
    result_events: ClassVar[Sequence[str]] = tuple(f"{name}.Withdrawn" for name in PAYING_CONTRACTS)

    def read_result(self, row: ChainRequestRow, events: Sequence[ChainEvent]) -> Mapping[str, Any]:
        """What the contracts paid to the address so far."""
        paid = [event.args["amount"] for event in events if event.args["receiver"] == row.address]
        return {"micro": sum(paid)} if paid else {}

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        key, to_credits = await self.context.account_key(row), row.params.receiver is None
        if row.step == 0:
            calls = await self._withdrawals(row, key)
            if to_credits and not row.params.only_owed:
                calls += await self._pay_of_providers(row)
            if not calls and not to_credits:
                raise InvalidField("The contracts owe this address nothing.")
            return CallBatch(tuple(calls), more_steps=to_credits)
        return await self._deposit(row, key)

    async def _withdrawals(self, row: ChainRequestRow, key: SigningKey) -> list[NamedCall]:
        wanted = PAYING_CONTRACTS if row.params.contract == ALL_CONTRACTS else (row.params.contract,)
        if not set(wanted) <= set(PAYING_CONTRACTS):
            raise InvalidField(f"No contract {row.params.contract[:40]!r} owes money. Known: {PAYING_CONTRACTS}.")
        calls = list[NamedCall]()
        for name in wanted:
            if await self.context.view(self.context.contracts[name], "owed", key.address):
                receiver = row.params.receiver or key.address
                calls.append((f"withdraw_{name}", await self._withdraw(name, key, receiver)))
        return calls

    async def _pay_of_providers(self, row: ChainRequestRow) -> list[NamedCall]:
        """Of the escrow alone: a bond comes back by its own request, which uses the registry's nonces."""
        calls = list[NamedCall]()
        for provider in await self.context.database.providers.list_of(row.account_id):
            is_owed = provider.is_held and len(calls) < PROVIDERS_PAID_MAX
            if is_owed and await self.context.view(self.context.contracts[ESCROW], "owed", provider.address):
                key = await provider_key(self.context, replace(row, address=provider.address))
                calls.append((f"pay_{provider.address}", await self._withdraw(ESCROW, key, row.address)))
        return calls

    async def _withdraw(self, name: str, key: SigningKey, receiver: str) -> ContractCall:
        context, contract, deadline = self.context, self.context.contracts[name], await self.context.deadline()
        nonce = await context.next_nonce(contract, key.address)
        signature = context.sign(key, contract, Withdraw(key.address, receiver, nonce, deadline))
        return contract.encode_call("withdraw_with_signature", key.address, receiver, deadline, signature)

    async def _deposit(self, row: ChainRequestRow, key: SigningKey) -> CallBatch:
        context, settlement = self.context, self.context.contracts[SETTLEMENT]
        token = await context.token()
        micro = int(await context.view(token, "balanceOf", key.address))
        if row.params.only_owed:
            micro = min(micro, row.result.get("micro", 0))
        if not micro:
            return CallBatch()
        payment = await context.payment_calls(key, spender=settlement, micro=micro, may_mint=False)
        nonce, deadline = await context.next_nonce(settlement, key.address), await context.deadline()
        account = await self._credited_address(row)
        signature = context.sign(key, settlement, Deposit(key.address, account, micro, nonce, deadline))
        call = settlement.encode_call("deposit_with_signature", key.address, account, micro, deadline, signature)
        return CallBatch((*payment, ("deposit", call)))

    async def _credited_address(self, row: ChainRequestRow) -> str:
        """The account's own: what comes back to a former address can leave by the new one."""
        account = await self.context.database.accounts.find_account(row.account_id)
        return row.address if account is None or account.chain_address is None else account.chain_address


@dataclass(frozen=True, slots=True)
class ExitHandler(RequestHandler):
    """Step 0 asks the contract. For a receiver, step 1 waits until it has paid and sends the tokens on.

    The tokens are sent by `transferFrom`, which the operator's key alone may call: it has the permit.
    """

    context: ChainRequestContext
    operator: str
    result_events: ClassVar[Sequence[str]] = (f"{SETTLEMENT}.ExitRequested",)

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        if row.step == 0:
            return CallBatch((await self._ask(row),), more_steps=row.params.receiver is not None)
        return CallBatch() if await self._is_sent_on(row) else CallBatch(wait_s=EXIT_POLL_S)

    def read_result(self, row: ChainRequestRow, events: Sequence[ChainEvent]) -> Mapping[str, Any]:
        found = [event.args for event in events if event.args["account"] == row.address]
        return {"micro": found[-1]["amount"], "ready_at": found[-1]["ready_at"]} if found else {}

    async def _ask(self, row: ChainRequestRow) -> NamedCall:
        """One at a time: the contract would replace the one before."""
        context, settlement = self.context, self.context.contracts[SETTLEMENT]
        pending, _ = await context.view(settlement, "exit_of", row.address)
        if int(pending):
            raise InvalidField("A withdrawal is under way already. Wait until it is paid.")
        if not await context.view(settlement, "unspent", row.address):
            raise InvalidField(NOTHING_DEPOSITED)
        key, deadline = await context.account_key(row), await context.deadline()
        nonce = await context.next_nonce(settlement, row.address)
        signature = context.sign(key, settlement, RequestExit(row.address, row.micro, nonce, deadline))
        call = settlement.encode_call("request_exit_with_signature", row.address, row.micro, deadline, signature)
        return "exit", call

    async def _paid(self, row: ChainRequestRow) -> int | None:
        """What the contract paid for this very request; other tokens at the address are none of its business."""
        database = self.context.database
        sent = [each.tx_hash for each in await database.chain_requests.list_sent(row.id) if each.tx_hash is not None]
        asked = await database.chain.events_of(sent, names=self.result_events)
        if not asked:
            return None
        return await database.exits.paid_after(row.address, (asked[-1].block_number, asked[-1].log_index))

    async def _is_sent_on(self, row: ChainRequestRow) -> bool:
        context, store = self.context, self.context.database.chain
        business_id = f"{row.id}:send_on"
        sent = await store.find(business_id)
        if sent is not None:
            if sent.state in {OutboxState.REVERTED, OutboxState.REFUSED}:
                raise InvalidField(f"The tokens are at {row.address}: the token says {sent.reason or 'no'}.")
            return sent.state is OutboxState.FINAL
        paid = await self._paid(row)
        if paid is None:
            return False
        key, token = await context.account_key(row), await context.token()
        micro = min(paid, int(await context.view(token, "balanceOf", row.address)))
        if not micro:
            raise InvalidField("The tokens that the exit paid were used meanwhile, by another request of the account.")
        permit = await context.permit_address(token, key, self.operator, micro)
        send = token.encode_call("transferFrom", row.address, row.params.receiver, micro)
        await enqueue(store, permit, business_id=f"{business_id}:permit", sender=self.operator)
        await enqueue(store, send, business_id=business_id, sender=self.operator)
        return False


def withdrawal_handlers(context: ChainRequestContext, *, operator: str) -> dict[ChainRequestKind, RequestHandler]:
    return {
        ChainRequestKind.WITHDRAW: WithdrawHandler(context),
        ChainRequestKind.EXIT: ExitHandler(context, operator),
    }
