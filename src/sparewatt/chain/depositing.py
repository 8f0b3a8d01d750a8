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
from sparewatt.chain.model import Call
from sparewatt.chain.settlement import token_of, view
from sparewatt.core.errors import InvalidField
from sparewatt.core.money import Nano, format_usd
from sparewatt.ledger.settlement import NANO_PER_MICRO
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.protocol.twins import Deposit, Permit
from sparewatt.protocol.typed import contract_domain, message_digest
from sparewatt.store.people import PeopleStore
from sparewatt.store.requests import RequestRow

SIGNATURE_LIFE_S = 86_400
"""A day: a chain that is away for longer has the deposit refused, and the user asks again."""

NamedCall = tuple[str, Call]
"""What a transaction is for, within its request, and the transaction."""


@dataclass(frozen=True, slots=True)
class Depositing:
    client: ChainClient
    settlement: Contract
    chain_id: int
    people: PeopleStore
    custody: Callable[[], Custody | None]
    """Asked when it is needed: a gateway that starts beside this process makes the secret."""
    test_money: bool

    async def calls(self, row: RequestRow) -> list[NamedCall]:
        """In order. Raises InvalidField where the account cannot."""
        key = await self._key_of(row)
        token = await token_of(self.client, self.settlement)
        missing = row.micro - int(await view(self.client, token, "balanceOf", row.address))
        deadline = (await self.client.head()).unix_s + SIGNATURE_LIFE_S
        return [
            *self._given(token, row.address, missing),
            ("permit", await self._permit(token, row, key, deadline)),
            ("deposit", await self._deposit(row, key, deadline)),
        ]

    async def _key_of(self, row: RequestRow) -> SigningKey:
        sealed, custody = await self.people.find_chain_key(row.account_id), self.custody()
        if sealed is None or custody is None:
            raise InvalidField("The chain's process does not have the key of this account's address.")
        try:
            key = custody.open(row.account_id, sealed)
        except ValueError:
            raise InvalidField("The chain's process has another secret than the network's gateways.") from None
        if key.address != row.address:
            raise InvalidField("The account has another address by now.")
        return key

    def _given(self, token: Contract, address: str, missing: int) -> list[NamedCall]:
        if missing <= 0:
            return []
        if not self.test_money:
            short = format_usd(Nano(missing * NANO_PER_MICRO))
            raise InvalidField(f"{address} lacks ${short} of the token at {token.address}: send it there first.")
        return [("faucet", token.call("faucet", address, missing))]

    async def _permit(self, token: Contract, row: RequestRow, key: SigningKey, deadline: int) -> Call:
        nonce = await view(self.client, token, "nonces", row.address)
        permit = Permit(row.address, self.settlement.address, row.micro, nonce, deadline)
        signature = key.sign(message_digest(await self._domain_of(token), permit))
        r, s, v = signature[:32], signature[32:64], signature[64]
        return token.call("permit", row.address, self.settlement.address, row.micro, deadline, v, r, s)

    async def _domain_of(self, token: Contract) -> Domain:
        """EIP-2612: the token's own name and version."""
        name, version = await view(self.client, token, "name"), await view(self.client, token, "version")
        return Domain(name, version, chain_id=self.chain_id, verifying_contract=token.address)

    async def _deposit(self, row: RequestRow, key: SigningKey, deadline: int) -> Call:
        nonce = await view(self.client, self.settlement, "nonces", row.address)
        message = Deposit(row.address, row.address, row.micro, nonce, deadline)
        domain = contract_domain(chain_id=self.chain_id, contract=self.settlement.address)
        signature = key.sign(message_digest(domain, message))
        args = (row.address, row.address, row.micro, deadline, signature)
        return self.settlement.call("deposit_with_signature", *args)
