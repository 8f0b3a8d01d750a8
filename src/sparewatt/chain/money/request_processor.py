"""Turns the chain requests of accounts (deposits and claims) into transactions, once, and finishes them with these.

A deposit comes out of an account's own address whose key the network holds: the account signs a permit (EIP-2612) and
the deposit, the operator relays both and pays the gas. A claim carries the Merkle proof of a payout leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from sparewatt.accounts.custody import Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.money.settlement_contract import call_view, claim_call, settlement_token
from sparewatt.core.errors import ChainReverted, InvalidField
from sparewatt.core.log import Logger
from sparewatt.core.money import Nano, format_usd
from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import ContractCall, hex_of
from sparewatt.ledger.payouts import NANO_PER_MICRO, PayoutService
from sparewatt.protocol.contracts.meta_transactions import Deposit, Permit
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest
from sparewatt.store.accounts import AccountStore
from sparewatt.store.chain import ChainStore, OutboxState
from sparewatt.store.chain_requests import (
    ChainRequestKind,
    ChainRequestRow,
    ChainRequestState,
    ChainRequestStore,
    OutboxCall,
)

_log = Logger("sparewatt.chain")
REQUESTS_PER_STEP = 16
"""Requests that become transactions in one step; each needs a few requests to the chain's node."""
SIGNATURE_LIFE_S = 86_400
"""A day. If the chain is away for longer, the deposit is refused and the user asks again."""
NamedCall = tuple[str, ContractCall]
"""The call's part in its request (`permit`, `deposit`, …), and the call."""


@dataclass(frozen=True, slots=True)
class DepositCallBuilder:
    client: ChainClient
    settlement: Contract
    chain_id: int
    accounts: AccountStore
    custody: Callable[[], Custody | None]
    """Called when a key is needed: a gateway that starts at the same time makes the secret."""
    test_money: bool

    async def build_calls(self, row: ChainRequestRow) -> list[NamedCall]:
        """In order. Raises InvalidField if the account cannot deposit."""
        key = await self._key_of(row)
        token = await settlement_token(self.client, self.settlement)
        missing = row.micro - int(await call_view(self.client, token, "balanceOf", row.address))
        deadline = (await self.client.head()).unix_s + SIGNATURE_LIFE_S
        return [
            *self._faucet_calls(token, row.address, missing),
            ("permit", await self._permit(token, row, key, deadline)),
            ("deposit", await self._deposit(row, key, deadline)),
        ]

    async def _key_of(self, row: ChainRequestRow) -> SigningKey:
        sealed, custody = await self.accounts.find_chain_key(row.account_id), self.custody()
        if sealed is None or custody is None:
            raise InvalidField("The chain's process does not have the key of this account's address.")
        try:
            key = custody.open(row.account_id, sealed)
        except ValueError:
            raise InvalidField("The chain's process has another secret than the network's gateways.") from None
        if key.address != row.address:
            raise InvalidField("The account has another address by now.")
        return key

    def _faucet_calls(self, token: Contract, address: str, missing: int) -> list[NamedCall]:
        if missing <= 0:
            return []
        if not self.test_money:
            short = format_usd(Nano(missing * NANO_PER_MICRO))
            raise InvalidField(f"{address} lacks ${short} of the token at {token.address}: send it there first.")
        return [("faucet", token.encode_call("faucet", address, missing))]

    async def _permit(self, token: Contract, row: ChainRequestRow, key: SigningKey, deadline: int) -> ContractCall:
        nonce = await call_view(self.client, token, "nonces", row.address)
        permit = Permit(row.address, self.settlement.address, row.micro, nonce, deadline)
        signature = key.sign(message_digest(await self._domain_of(token), permit))
        r, s, v = signature[:32], signature[32:64], signature[64]
        return token.encode_call("permit", row.address, self.settlement.address, row.micro, deadline, v, r, s)

    async def _domain_of(self, token: Contract) -> Domain:
        """EIP-2612: the token's own name and version."""
        name, version = await call_view(self.client, token, "name"), await call_view(self.client, token, "version")
        return Domain(name, version, chain_id=self.chain_id, verifying_contract=token.address)

    async def _deposit(self, row: ChainRequestRow, key: SigningKey, deadline: int) -> ContractCall:
        nonce = await call_view(self.client, self.settlement, "nonces", row.address)
        message = Deposit(row.address, row.address, row.micro, nonce, deadline)
        domain = contract_domain(chain_id=self.chain_id, contract=self.settlement.address)
        signature = key.sign(message_digest(domain, message))
        args = (row.address, row.address, row.micro, deadline, signature)
        return self.settlement.encode_call("deposit_with_signature", *args)


@dataclass(frozen=True, slots=True)
class ChainRequestProcessor:
    store: ChainStore
    requests: ChainRequestStore
    settlement: Contract
    deposit_calls: DepositCallBuilder
    payouts: PayoutService
    sender: str
    """Relays the transactions and pays the gas."""

    async def step(self) -> None:
        """Runs after final events were delivered, so that the ledger has what a finished request did."""
        for row in await self.requests.list_decided(limit=REQUESTS_PER_STEP):
            await self._check_outcome(row)
        for row in await self.requests.list_asked(limit=REQUESTS_PER_STEP):
            await self._enqueue(row)

    async def _check_outcome(self, row: ChainRequestRow) -> None:
        """By its last transaction, which succeeds only if those before it did."""
        sent = await self.store.find(_business_id(row, row.kind.value))
        if sent is None:
            await self._fail(row, "the network changed to another chain meanwhile.")
        elif sent.state is OutboxState.FINAL:
            await self.requests.finish(row.id, ChainRequestState.DONE, tx=hex_of(sent.tx_hash or b""))
        elif sent.state in {OutboxState.REVERTED, OutboxState.REFUSED}:
            await self._fail(row, f"the contract says {sent.reason or 'no'}.")

    async def _enqueue(self, row: ChainRequestRow) -> None:
        try:
            calls = await self._calls(row)
        except (InvalidField, ChainReverted) as error:
            await self._fail(row, error.message)
            return
        named = [OutboxCall(_business_id(row, name), call.to, call.data) for name, call in calls]
        await self.requests.enqueue_calls(row.id, sender=self.sender, calls=named)

    async def _calls(self, row: ChainRequestRow) -> list[NamedCall]:
        match row.kind:
            case ChainRequestKind.DEPOSIT:
                return await self.deposit_calls.build_calls(row)
            case ChainRequestKind.CLAIM:
                return [(row.kind.value, await self._claim(row))]
            case _ as never:
                assert_never(never)

    async def _claim(self, row: ChainRequestRow) -> ContractCall:
        proof = await self.payouts.proof(row.epoch or 0, row.address)
        if proof is None:
            raise InvalidField(f"{row.address} is not in batch {row.epoch}.")
        return claim_call(self.settlement, proof)

    async def _fail(self, row: ChainRequestRow, reason: str) -> None:
        _log.warning("chain_request_failed", request=row.id, why=reason)
        await self.requests.finish(row.id, ChainRequestState.FAILED, reason=reason)


def _business_id(row: ChainRequestRow, name: str) -> str:
    return f"{row.id}:{name}"
