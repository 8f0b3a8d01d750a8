"""What the handlers of chain requests share: contracts, held keys, and the calls that bring tokens to a contract.

An account whose key the network holds signs (EIP-712, EIP-2612); a relayer sends and pays the gas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sparewatt.accounts.custody import Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.money.settlement_contract import SETTLEMENT, call_view, settlement_token
from sparewatt.chain.requests.handler import NamedCall
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField
from sparewatt.core.money import Nano, format_usd
from sparewatt.evm.contract_abi import Contract, Contracts
from sparewatt.evm.model import ContractCall
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.contracts.meta_transactions import Permit
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.database import Database

PAYMENT_GAS = 200_000
"""The limit of a permit, and of the faucet: twice what known tokens take. Without an estimate, which needs the calls
before it to be mined, the calls of a payment get into one block."""
SIGNATURE_LIFE_S = 86_400
"""A day. If the chain is away for longer, the request is refused and the user asks again."""


@dataclass(frozen=True, slots=True)
class ChainRequestContext:
    client: ChainClient
    contracts: Contracts
    chain_id: int
    database: Database
    custody: Callable[[], Custody | None]
    """Called when a key is needed: a gateway that starts at the same time makes the secret."""
    test_money: bool
    clock: Clock
    _known: dict[str, Any] = field(default_factory=dict, repr=False)
    """What never changes on a chain: the token, and the domain of its permits."""

    async def view(self, contract: Contract, function: str, *args: object) -> Any:
        return await call_view(self.client, contract, function, *args)

    async def token(self) -> Contract:
        """The one that the settlement contract takes."""
        if "token" not in self._known:
            self._known["token"] = await settlement_token(self.client, self.contracts[SETTLEMENT])
        token: Contract = self._known["token"]
        return token

    async def deadline(self) -> int:
        """For a signature that is made now, in chain time."""
        return (await self.client.head()).unix_s + SIGNATURE_LIFE_S

    async def account_key(self, row: ChainRequestRow) -> SigningKey:
        """The held key of the request's address, which is the account's, or was. Raises InvalidField."""
        accounts, custody = self.database.accounts, self.custody()
        sealed = await accounts.find_chain_key_at(row.account_id, row.address)
        if sealed is None or custody is None:
            raise InvalidField(f"The chain's process does not have the key of {row.address} for this account.")
        try:
            key = custody.open(row.account_id, sealed)
        except ValueError:
            raise InvalidField("The chain's process has another secret than the network's gateways.") from None
        if key.address != row.address:
            raise InvalidField("The account has another address by now.")
        return key

    async def next_nonce(self, contract: Contract, address: str) -> int:
        """The nonce of the address's next signature at this contract."""
        return int(await self.view(contract, "nonces", address))

    def sign(self, key: SigningKey, contract: Contract, message: TypedMessage) -> bytes:
        """The signature that a contract's `…_with_signature` wants."""
        return key.sign(message_digest(contract_domain(chain_id=self.chain_id, contract=contract.address), message))

    async def payment_calls(
        self, key: SigningKey, *, spender: Contract, micro: int, may_mint: bool = True
    ) -> list[NamedCall]:
        """Let a contract take `micro` from the key's address: a permit, and the faucet where test money is missing.

        `may_mint`: whether somebody has paid for the missing test money. Raises InvalidField if money is missing.
        """
        token = await self.token()
        missing = micro - int(await self.view(token, "balanceOf", key.address))
        return [
            *self._faucet_calls(token, key.address, missing, may_mint=may_mint),
            ("permit", await self.permit(token, key, spender, micro)),
        ]

    def _faucet_calls(self, token: Contract, address: str, missing: int, *, may_mint: bool) -> list[NamedCall]:
        if missing <= 0:
            return []
        if not (self.test_money and may_mint):
            short = format_usd(Nano(missing * NANO_PER_MICRO))
            raise InvalidField(f"{address} lacks ${short} of the token at {token.address}: send it there first.")
        return [("faucet", self.faucet(token, address, missing))]

    def faucet(self, token: Contract, address: str, micro: int) -> ContractCall:
        return replace(token.encode_call("faucet", address, micro), gas_limit=PAYMENT_GAS)

    async def permit(self, token: Contract, key: SigningKey, spender: Contract, micro: int) -> ContractCall:
        return await self.permit_address(token, key, spender.address, micro)

    async def permit_address(self, token: Contract, key: SigningKey, spender: str, micro: int) -> ContractCall:
        deadline = await self.deadline()
        nonce = await self.next_nonce(token, key.address)
        permit = Permit(key.address, spender, micro, nonce, deadline)
        signature = key.sign(message_digest(await self._token_domain(token), permit))
        r, s, v = signature[:32], signature[32:64], signature[64]
        call = token.encode_call("permit", key.address, spender, micro, deadline, v, r, s)
        return replace(call, gas_limit=PAYMENT_GAS)

    async def _token_domain(self, token: Contract) -> Domain:
        """EIP-2612: the token's own name and version."""
        if "domain" not in self._known:
            name, version = await self.view(token, "name"), await self.view(token, "version")
            self._known["domain"] = Domain(name, version, chain_id=self.chain_id, verifying_contract=token.address)
        domain: Domain = self._known["domain"]
        return domain
