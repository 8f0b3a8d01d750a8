"""The calls that the chain's process makes of a renter's requests, carried out by the compiled contracts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparewatt.accounts.custody import SECRET_BYTES, Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import shipped_artifacts
from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.leases import lease_handlers
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import BlockHeader, ContractCall
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.credit_holds import REQUEST, CreditHoldRow
from sparewatt.store.database import Database
from sparewatt.store.request_params import ChainRequestKind, LeaseParams, OrderParams, UpdateParams
from tests.evm.auction import Order, place_order
from tests.evm.machine import CHAIN_ID, Contract, now, refused
from tests.evm.network import DEPLOYER, USD, Network
from tests.order_terms import order_terms

ACCOUNT = AccountId("acc_renter")
CUSTODY = Custody(bytes(SECRET_BYTES), rng=seeded(3))
HELD = CUSTODY.make(ACCOUNT)
RENTER = CUSTODY.open(ACCOUNT, HELD.sealed)
RELAYER = "0x" + "77" * 20
SPEC = b"\x09" * 32
ACTIVE, PAUSED, CLOSED = 2, 3, 5


class MachineClient(ChainClient):
    """Reads the chain of the machine."""

    def __init__(self, contracts: dict[str, Contract]) -> None:
        self.contracts = contracts

    async def call(self, call: ContractCall, *, sender: str | None = None, at_block: int | None = None) -> bytes:
        return self.contracts[call.to].raw(call.data, who=RELAYER)

    async def head(self) -> BlockHeader:
        return BlockHeader(1, bytes(32), bytes(32), now(), 0)


class Requests:
    """Makes the calls of a request and has a relayer send them."""

    def __init__(self, network: Network, *, held_micro: int = 0, test_money: bool = True) -> None:
        named = {
            contract.name: contract
            for contract in (network.token, network.orders, network.escrow, network.settlement, network.moves)
        }
        self.by_address = {contract.address: contract for contract in named.values()}
        addresses = {name: contract.address for name, contract in named.items()}
        self.held_micro, self.test_money = held_micro, test_money
        database = SimpleNamespace(
            accounts=SimpleNamespace(find_chain_key_at=self._find_key),
            credit_holds=SimpleNamespace(find=self._find_hold),
            payouts=SimpleNamespace(last_ripe_epoch=self._last_ripe_epoch),
        )
        context = ChainRequestContext(
            MachineClient(self.by_address),
            Contracts(shipped_artifacts(), addresses),
            CHAIN_ID,
            cast("Database", database),
            lambda: CUSTODY,
            test_money,
            SystemClock(),
        )
        self.handlers = lease_handlers(context)

    async def _find_key(self, account: AccountId, address: str) -> bytes:
        assert (account, address) == (ACCOUNT, RENTER.address)
        return HELD.sealed

    async def _last_ripe_epoch(self) -> int | None:
        """No payout root is ripe yet."""
        return None

    async def _find_hold(self, hold_id: str) -> CreditHoldRow | None:
        if not self.held_micro:
            return None
        nano = Nano(1_000 * self.held_micro)
        by_root = not self.test_money
        return CreditHoldRow(hold_id, REQUEST, ACCOUNT, RENTER.address, paid_nano=nano, by_root=by_root)

    def build(self, kind: ChainRequestKind, params: Any, *, micro: int = 0) -> tuple[list[str], list[ContractCall]]:
        row = ChainRequestRow(f"{kind.value}:1", kind, ACCOUNT, RENTER.address, micro, params)
        batch = asyncio.run(self.handlers[kind].build_calls(row))
        assert not batch.more_steps
        if batch.wait_s:
            return ["wait"], []
        return [name for name, _ in batch.calls], [call for _, call in batch.calls]

    def do(self, kind: ChainRequestKind, params: Any, *, micro: int = 0) -> list[str]:
        names, calls = self.build(kind, params, micro=micro)
        for call in calls:
            self.by_address[call.to].raw(call.data, who=RELAYER)
        return names


@pytest.fixture
def lease(network: Network) -> Order:
    """A running lease of the renter."""
    order = place_order(network, renter=RENTER)
    order.started({0: 2 * USD, 1: USD})
    network.token.transfer(DEPLOYER, network.token.balanceOf(RENTER.address), who=RENTER.address)
    for vault in network.vaults:
        network.token.approve(vault.address, 0, who=RENTER.address)
    return order


def ref(order: Order) -> LeaseParams:
    return LeaseParams("0x" + order.order_id.hex())


def test_an_order_is_paid_and_made_by_relayed_calls(network: Network) -> None:
    requests = Requests(network, held_micro=5 * USD)
    params = OrderParams(order_terms(), "0x" + SPEC.hex(), now() + 3_600, 3)
    before = network.orders.order_count(RENTER.address)
    assert requests.do(ChainRequestKind.ORDER, params, micro=5 * USD) == ["faucet", "permit", "order"]
    assert network.orders.order_count(RENTER.address) == before + 1
    assert network.token.balanceOf(RENTER.address) == 0


@pytest.mark.parametrize("held_micro", [0, 5 * USD - 1])
def test_an_order_that_no_credits_were_held_for_gets_no_test_money(network: Network, held_micro: int) -> None:
    """Whoever inserts a request without its hold, or with a smaller one, would order for nothing."""
    params = OrderParams(order_terms(), "0x" + SPEC.hex(), now() + 3_600, 3)
    with pytest.raises(InvalidField, match="neither held"):
        Requests(network, held_micro=held_micro).build(ChainRequestKind.ORDER, params, micro=5 * USD)


def test_real_money_is_waited_for_while_the_credits_are_held(network: Network) -> None:
    requests = Requests(network, held_micro=5 * USD, test_money=False)
    params = OrderParams(order_terms(), "0x" + SPEC.hex(), now() + 3_600, 3)
    assert requests.build(ChainRequestKind.ORDER, params, micro=5 * USD)[0] == ["wait"]
    network.token.faucet(RENTER.address, 5 * USD)
    assert requests.do(ChainRequestKind.ORDER, params, micro=5 * USD) == ["permit", "order"]


def test_what_the_escrow_owes_pays_for_the_next_order(network: Network) -> None:
    requests = Requests(network, held_micro=5 * USD)
    order = place_order(network, renter=RENTER, deposit=4 * USD)
    network.token.transfer(DEPLOYER, network.token.balanceOf(RENTER.address), who=RENTER.address)
    assert requests.do(ChainRequestKind.CANCEL, ref(order)) == ["cancel"]
    assert network.escrow.owed(RENTER.address) == 4 * USD
    params = OrderParams(order_terms(), "0x" + SPEC.hex(), now() + 3_600, 3)
    assert requests.do(ChainRequestKind.ORDER, params, micro=4 * USD) == ["order"]
    assert network.escrow.owed(RENTER.address) == 0


def test_a_lease_is_topped_up_paused_resumed_and_closed(lease: Order) -> None:
    requests = Requests(lease.network, held_micro=USD)
    assert requests.do(ChainRequestKind.TOP_UP, ref(lease), micro=USD) == ["faucet", "permit", "top_up"]
    requests.do(ChainRequestKind.PAUSE, ref(lease))
    assert lease.lease["state"] == PAUSED
    requests.do(ChainRequestKind.RESUME, ref(lease))
    assert lease.lease["state"] != PAUSED
    requests.do(ChainRequestKind.CLOSE, ref(lease))
    assert lease.lease["state"] == CLOSED
    assert lease.network.escrow.owed(RENTER.address) > 10 * USD  # the deposit and the top-up, less seconds


def test_an_update_is_proposed_and_changes_nothing_until_it_is_accepted(lease: Order) -> None:
    requests, rate = Requests(lease.network), lease.lease["rate"]
    params = UpdateParams("0x" + lease.order_id.hex(), "0x" + SPEC.hex(), 2 * USD, 7_200, 1)
    assert requests.do(ChainRequestKind.UPDATE, params) == ["update"]
    moves = lease.network.moves
    assert moves.update_seq(lease.order_id) == 1
    assert (lease.lease["state"], lease.lease["rate"]) == (ACTIVE, rate)
    moves.accept_update(lease.order_id, SPEC, 2 * USD, 7_200, 1, who=lease.provider.address)
    assert lease.lease["rate"] == 2 * USD


def test_the_same_calls_sent_twice_act_once(lease: Order) -> None:
    requests = Requests(lease.network)
    _, (pause,) = requests.build(ChainRequestKind.PAUSE, ref(lease))
    orders = lease.network.orders
    orders.raw(pause.data, who=RELAYER)
    with refused("NOT_SIGNED_BY_ACCOUNT"):
        orders.raw(pause.data, who=RELAYER)


def test_another_renters_lease_is_left_alone(network: Network) -> None:
    theirs = place_order(network)
    with refused("NOT_RENTER"):
        Requests(network).do(ChainRequestKind.CANCEL, ref(theirs))
