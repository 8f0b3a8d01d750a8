"""The guardian's command on the real contracts: what a stolen operator's key promises is struck in its delay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from sparewatt.chain.client import ChainClient
from sparewatt.chain.commands import deploy, fund
from sparewatt.chain.contracts import DeploymentRecord, shipped_contracts
from sparewatt.chain.deployment import send_directly
from sparewatt.chain.guard import GuardAction, guard
from sparewatt.chain.money.settlement_contract import call_view
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainReverted, StartupError
from sparewatt.evm.contract_abi import Contract
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from sparewatt.protocol.signing import SigningKey
from tests.integration.chain.setting import Setting

DEPOSIT = 25_000_000
DELAY_S = 86_400


@dataclass
class Theft:
    """A network with the public times, a deposit in its pool, and a thief who has the operator's key."""

    client: ChainClient
    folder: Path
    settlement: Contract
    chain_id: int

    async def send(self, key: SigningKey, contract: Contract, function: str, *args: object) -> None:
        nonce, call = await self.client.next_nonce(key.address), contract.encode_call(function, *args)
        receipt = await send_directly(self.client, call, key, nonce=nonce, chain_id=self.chain_id, clock=SystemClock())
        assert receipt.succeeded

    async def post(self) -> None:
        """All of the pool for the thief."""
        operator = SigningKey.read(self.folder / "operator.key")
        self.entry = PayoutEntry(operator.address, DEPOSIT, 0)
        self.tree = settlement_tree([self.entry])
        epoch = (await self.pool())[3] + 1
        await self.send(operator, self.settlement, "post_root", 0, epoch, self.tree.root, 1, DEPOSIT)

    async def claim(self) -> None:
        operator = SigningKey.read(self.folder / "operator.key")
        await self.send(operator, self.settlement, "claim", 0, 1, self.entry.values(), 0, list(self.tree.path(0)))

    async def pool(self) -> tuple[int, ...]:
        return tuple(await call_view(self.client, self.settlement, "pools", 0))

    async def pass_time(self, seconds: int) -> None:
        await self.client.request("evm_increaseTime", hex(seconds))
        await self.client.request("evm_mine")


@pytest.fixture
async def theft(setting: Setting, tmp_path: Path) -> Theft:
    client, folder = setting.client, tmp_path / "public"
    local = shipped_contracts(await deploy(client, tmp_path / "local"))
    record: DeploymentRecord = await deploy(client, folder, plan="public", token=local["token"].address)
    theft = Theft(client, folder, shipped_contracts(record)["settlement"], record.chain_id)
    user = SigningKey(bytes(31) + b"\x21")
    await fund(client, tmp_path / "local", address=user.address, amount_usd="25")
    await theft.send(user, local["token"], "approve", theft.settlement.address, DEPOSIT)
    await theft.send(user, theft.settlement, "deposit", user.address, DEPOSIT)
    return theft


async def test_a_stolen_root_is_struck_in_its_delay(theft: Theft) -> None:
    await theft.post()
    await theft.pass_time(DELAY_S - 60)
    with pytest.raises(ChainReverted, match="ROOT_NOT_RIPE"):
        await theft.claim()
    await guard(theft.client, theft.folder, action=GuardAction.STRIKE)
    assert await theft.pool() == (DEPOSIT, 0, 0, 0)
    await theft.pass_time(DELAY_S)
    with pytest.raises(ChainReverted, match="NOT_IN_ROOT"):
        await theft.claim()


async def test_without_a_strike_the_delay_is_all_there_is(theft: Theft) -> None:
    await theft.post()
    await theft.pass_time(DELAY_S)
    with pytest.raises(ChainReverted, match="ROOT_IS_RIPE"):
        await guard(theft.client, theft.folder, action=GuardAction.STRIKE)
    await theft.claim()
    assert (await theft.pool())[2] == DEPOSIT


async def test_a_stopped_pool_takes_no_root_until_it_is_lifted(theft: Theft) -> None:
    await guard(theft.client, theft.folder, action=GuardAction.STOP)
    with pytest.raises(ChainReverted, match="POOL_STOPPED"):
        await theft.post()
    await guard(theft.client, theft.folder, action=GuardAction.LIFT)
    await theft.post()


async def test_only_the_guardians_key_does_it(theft: Theft, tmp_path: Path) -> None:
    await theft.post()
    with pytest.raises(ChainReverted, match="NOT_GUARDIAN"):
        await guard(theft.client, theft.folder, action=GuardAction.STRIKE, key_file=theft.folder / "operator.key")
    missing = tmp_path / "elsewhere.key"
    with pytest.raises(StartupError, match="--key FILE"):
        await guard(theft.client, theft.folder, action=GuardAction.STRIKE, key_file=missing)
    assert not missing.exists()  # a guard makes no key: it would guard nothing
