"""The transactions that make a deposit out of an account's own address, for accounts whose key the network holds.

The account signs a permit and the deposit; the operator relays both and pays the gas. On a chain of test money the
faucet gives what the address lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparewatt.accounts.custody import Custody
from sparewatt.chain.abi import Contract
from sparewatt.chain.client import ChainClient
from sparewatt.chain.model import ContractCall
from sparewatt.chain.money.settlement_contract import call_view, settlement_token
from sparewatt.core.errors import InvalidField
from sparewatt.core.money import Nano, format_usd
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.contracts.meta_transactions import Deposit, Permit
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest
from sparewatt.store.accounts import AccountStore
from sparewatt.store.chain_requests import ChainRequestRow

SIGNATURE_LIFE_S = 86_400
"""A day: a chain that is away for longer has the deposit refused, and the user asks again."""

NamedCall = tuple[str, ContractCall]
"""What a transaction is for, within its request, and the transaction."""


@dataclass(frozen=True, slots=True)
class DepositCallBuilder:
    client: ChainClient
    settlement: Contract
    chain_id: int
    accounts: AccountStore
    custody: Callable[[], Custody | None]
    """Asked when it is needed: a gateway that starts beside this process makes the secret."""
    test_money: bool

    async def build_calls(self, row: ChainRequestRow) -> list[NamedCall]:
        """In order. Raises InvalidField where the account cannot."""
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
