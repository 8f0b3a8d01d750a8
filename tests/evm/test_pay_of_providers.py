"""A request to collect brings the pay of an account's providers along, by the compiled contracts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from sparewatt.accounts.custody import Custody
from sparewatt.chain.contracts import shipped_artifacts
from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.handler import CallBatch
from sparewatt.chain.requests.withdrawals import WithdrawHandler
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.evm.contract_abi import Contracts
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.database import Database
from sparewatt.store.providers import ProviderRow, SealedProviderKey
from sparewatt.store.request_params import ALL_CONTRACTS, ChainRequestKind, WithdrawParams
from tests.evm.auction import place_order
from tests.evm.machine import CHAIN_ID, wait
from tests.evm.network import USD, Network, key
from tests.evm.test_lease_requests import RELAYER, MachineClient

OWNER, STRANGER = AccountId("acc_owner"), AccountId("acc_stranger")
OWNER_KEY, NODE = key(901), NodeId("0x" + "66" * 20)


class Collecting:
    """The owner's requests; `provider` is the one whose key the network holds for `account`."""

    def __init__(self, network: Network, provider: SigningKey, *, account: AccountId = OWNER) -> None:
        named = (network.token, network.escrow, network.stakes, network.book, network.settlement)
        self.by_address = {contract.address: contract for contract in named}
        self.keys = {b"account": OWNER_KEY, b"provider": provider}
        self.row = ProviderRow(provider.address, NODE, OWNER, is_held=True)
        self.held_for = account
        database = SimpleNamespace(
            accounts=SimpleNamespace(find_chain_key_at=self._account_key),
            providers=SimpleNamespace(list_of=self._list_of, find_key=self._provider_key),
        )
        self.handler = WithdrawHandler(
            ChainRequestContext(
                MachineClient(self.by_address),
                Contracts(shipped_artifacts(), {contract.name: contract.address for contract in named}),
                CHAIN_ID,
                cast("Database", database),
                lambda: cast("Custody", SimpleNamespace(open=lambda _, sealed, *__: self.keys[sealed])),
                True,
                SystemClock(),
            )
        )

    async def _account_key(self, account: AccountId, address: str) -> bytes:
        assert (account, address) == (OWNER, OWNER_KEY.address)
        return b"account"

    async def _list_of(self, account: AccountId) -> list[ProviderRow]:
        assert account == OWNER
        return [self.row]

    async def _provider_key(self, address: str) -> SealedProviderKey:
        assert address == self.row.address
        return SealedProviderKey(self.held_for, NODE, b"provider")

    def build(self, receiver: str | None = None) -> CallBatch:
        params = WithdrawParams(ALL_CONTRACTS, receiver)
        row = ChainRequestRow("w:1", ChainRequestKind.WITHDRAW, OWNER, OWNER_KEY.address, 0, params)
        return asyncio.run(self.handler.build_calls(row))

    def collect(self) -> list[str]:
        batch = self.build()
        for _, call in batch.calls:
            self.by_address[call.to].raw(call.data, who=RELAYER)
        return [name for name, _ in batch.calls]


def paid_provider(network: Network) -> SigningKey:
    """A provider that has earned, and has not been paid."""
    order = place_order(network)
    order.started({0: 2 * USD, 1: USD})
    wait(600)
    network.escrow.settle(order.order_id, who=RELAYER)
    (owed,) = [each for each in network.providers if network.escrow.owed(each.address)]
    return owed.owner


def test_what_the_escrow_owes_a_provider_comes_to_its_owner(network: Network) -> None:
    provider = paid_provider(network)
    owed = network.escrow.owed(provider.address)
    collecting = Collecting(network, provider)
    assert collecting.collect() == [f"pay_{provider.address}"]
    assert (network.escrow.owed(provider.address), network.token.balanceOf(OWNER_KEY.address)) == (0, owed)
    assert collecting.collect() == []


def test_a_request_with_a_receiver_leaves_the_providers_pay(network: Network) -> None:
    """It names where the account's own money goes."""
    provider = paid_provider(network)
    with pytest.raises(InvalidField, match="owe this address nothing"):
        Collecting(network, provider).build(receiver="0x" + "12" * 20)


def test_nobody_collects_for_the_provider_of_another_account(network: Network) -> None:
    """A row that was copied to another account: its key is held for the account that it was made for."""
    with pytest.raises(InvalidField, match="does not have the key"):
        Collecting(network, paid_provider(network), account=STRANGER).build()
