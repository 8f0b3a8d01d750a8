"""Contracts come to a chain once, and are looked at every time after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparewatt.chain.client import ChainClient
from sparewatt.chain.commands import deploy
from sparewatt.chain.contracts import (
    PUBLIC_PLAN,
    RECORD_FILE,
    DeploymentRecord,
    DeploymentStep,
    find_record,
    shipped_artifacts,
    shipped_contracts,
)
from sparewatt.chain.deployment import Deployment, send_directly, wait_for_receipt
from sparewatt.chain.money.settlement_contract import call_view
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import (
    ChainRefused,
    ChainReverted,
    ChainUnavailable,
    ContractsMissing,
    InvalidField,
    StartupError,
)
from sparewatt.evm.contract_abi import Artifact
from sparewatt.protocol.signing import SigningKey
from tests.integration.chain.echo import ARTIFACTS, PLAN, noted
from tests.integration.chain.setting import DEPLOYER, GUARDIAN, OPERATOR, Setting, deployment_of


def deployment(
    client: ChainClient, folder: Path, *, plan: list[DeploymentStep], artifacts: dict[str, Artifact] = ARTIFACTS
) -> Deployment:
    keys = {"deployer": DEPLOYER, "operator": OPERATOR.address, "guardian": GUARDIAN}
    return Deployment(client, folder, plan=plan, artifacts=artifacts, clock=SystemClock(), **keys)  # type: ignore[arg-type]


async def test_a_second_run_sends_nothing_and_finds_the_same(setting: Setting, tmp_path: Path) -> None:
    head = (await setting.client.head()).number
    assert await setting.deployment.ensure() == setting.record == find_record(tmp_path / "chain")
    assert (await setting.client.head()).number == head == len(PLAN)
    assert setting.record.start_block == 1


async def test_a_run_that_was_broken_off_goes_on_where_it_stopped(setting: Setting, tmp_path: Path) -> None:
    """Of a plan of three steps two are done, and nobody wrote that down."""
    (tmp_path / "chain" / RECORD_FILE).unlink()
    longer = [*PLAN, DeploymentStep(create="again")]
    artifacts = {**ARTIFACTS, "again": ARTIFACTS["echo"]}
    record = await deployment(setting.client, tmp_path / "chain", plan=longer, artifacts=artifacts).ensure()
    assert {name: record.contracts[name].address for name in ("echo", "refuser")} == setting.contracts.addresses
    assert await setting.client.code(record.contracts["again"].address)
    assert record.start_block == 0
    assert (await setting.client.head()).number == 3


async def test_a_chain_that_lost_the_contracts_gets_them_back_at_the_same_addresses(
    setting: Setting, tmp_path: Path
) -> None:
    await setting.client.request("anvil_rollback", 1)
    assert not await setting.client.code(setting.contracts["refuser"].address)
    record = await setting.deployment.ensure()
    assert record.contracts == setting.record.contracts
    assert await setting.client.code(setting.contracts["refuser"].address)


async def test_other_code_at_an_address_is_refused(setting: Setting) -> None:
    await setting.client.request("anvil_setCode", setting.echo, "0x00")
    with pytest.raises(ContractsMissing, match="not the contract 'echo'"):
        await setting.deployment.ensure()


async def test_contracts_of_another_release_are_refused(setting: Setting, tmp_path: Path) -> None:
    newer = {**ARTIFACTS, "echo": ARTIFACTS["refuser"]}
    with pytest.raises(ContractsMissing, match="another release"):
        await deployment(setting.client, tmp_path / "chain", plan=PLAN, artifacts=newer).ensure()


async def test_a_key_that_did_other_things_is_refused(setting: Setting, tmp_path: Path) -> None:
    other, chain_id = tmp_path / "other", setting.record.chain_id
    await send_directly(
        setting.client, noted(setting.echo, 1), OPERATOR, nonce=0, chain_id=chain_id, clock=SystemClock()
    )
    used = Deployment(
        setting.client,
        other,
        plan=PLAN,
        artifacts=ARTIFACTS,
        deployer=OPERATOR,
        operator=OPERATOR.address,
        guardian=GUARDIAN,
        clock=SystemClock(),
    )
    with pytest.raises(ContractsMissing, match="key of its own"):
        await used.ensure()
    assert not (other / RECORD_FILE).exists()


async def test_what_this_release_ships_is_deployed_whole(setting: Setting, tmp_path: Path) -> None:
    record = await deploy(setting.client, tmp_path / "shipped")
    assert set(record.contracts) == set(shipped_artifacts())
    assert await deploy(setting.client, tmp_path / "shipped") == record
    assert await wired(setting, record)


async def wired(setting: Setting, record: DeploymentRecord) -> bool:
    """Whether the contracts that name each other do, and every contract has the times of the stake registry."""
    contracts = shipped_contracts(record)

    async def view(name: str, function: str) -> Any:
        return await call_view(setting.client, contracts[name], function)

    orders, moves = contracts["deployment_order"].address, contracts["lease_moves"].address
    for name in ("stake_registry", "task_manager", "escrow", "lease_moves"):
        assert str(await view(name, "orders")).lower() == orders, name
    assert str(await view("deployment_order", "moves")).lower() == moves
    attempt_s = await view("stake_registry", "ATTEMPT_S")
    holders = ("provider_registry", "task_manager", "deployment_order", "lease_moves", "dispute", "dispute_book")
    assert {await view(name, "ATTEMPT_S") for name in holders} == {attempt_s}
    assert await view("settlement", "operator") != await view("settlement", "guardian")
    return True


async def test_the_public_plan_takes_the_operators_token_and_guardian(setting: Setting, tmp_path: Path) -> None:
    local = await deploy(setting.client, tmp_path / "local")
    token = local.addresses["token"]
    record = await deploy(setting.client, tmp_path / "public", plan=PUBLIC_PLAN, token=token, guardian=GUARDIAN)
    assert set(record.contracts) == set(shipped_artifacts()) - {"token"}
    assert await wired(setting, record)
    settlement = shipped_contracts(record)["settlement"]
    assert str(await call_view(setting.client, settlement, "token")).lower() == token
    assert str(await call_view(setting.client, settlement, "guardian")).lower() == GUARDIAN
    assert await call_view(setting.client, settlement, "ROOT_DELAY_S") == 86_400
    made = {path.name for path in (tmp_path / "public").iterdir()}
    assert made == {"deployer.key", "operator.key", RECORD_FILE}


async def test_a_guardian_key_is_made_beside_the_operators(setting: Setting, tmp_path: Path) -> None:
    record = await deploy(setting.client, tmp_path / "local")
    made = SigningKey.read(tmp_path / "local" / "guardian.key").address
    settlement = shipped_contracts(record)["settlement"]
    assert str(await call_view(setting.client, settlement, "guardian")).lower() == made
    assert (tmp_path / "local" / "guardian.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"plan": "public"}, "--token"),
        ({"plan": "local", "token": "0x" + "11" * 20}, "token of its own"),
        ({"plan": "public", "token": "0x" + "11" * 20}, "no ERC-20"),
        ({"plan": "public", "token": "0x12"}, "not an address"),
        ({"plan": "local", "guardian": "me"}, "not an address"),
    ],
)
async def test_a_token_or_guardian_that_cannot_be_is_refused_before_anything_is_made(
    setting: Setting, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidField, match=told):
        await deploy(setting.client, tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


async def test_a_token_of_other_decimals_is_refused(setting: Setting, tmp_path: Path) -> None:
    """Code that answers every call with 18: prices in millionths of a dollar would all be wrong."""
    token = "0x" + "12" * 20
    await setting.client.request("anvil_setCode", token, "0x601260005260206000f3")
    with pytest.raises(InvalidField, match="18 decimals"):
        await deploy(setting.client, tmp_path / "new", plan=PUBLIC_PLAN, token=token)


async def test_the_test_token_is_refused_on_a_public_chain(setting: Setting, tmp_path: Path) -> None:
    """A faucet on a public chain would make stakes and votes free."""
    await setting.client.request("anvil_setChainId", 10)
    with pytest.raises(ChainReverted, match="NOT_A_LOCAL_CHAIN"):
        await deploy(setting.client, tmp_path / "new")


async def test_a_plan_with_an_unknown_name_is_refused(setting: Setting, tmp_path: Path) -> None:
    plan = [*PLAN, DeploymentStep(create="echo2", args=("$nobody",))]
    artifacts = {**ARTIFACTS, "echo2": ARTIFACTS["echo"]}
    with pytest.raises(StartupError, match=r"\$nobody"):
        await deployment(setting.client, tmp_path / "chain", plan=plan, artifacts=artifacts).ensure()


async def test_a_step_that_a_contract_refuses_is_told(setting: Setting, tmp_path: Path) -> None:
    plan = [*PLAN, DeploymentStep(call="refuser.nothing")]
    entry = ARTIFACTS["echo"].abi[0]
    function = type(entry)(type="function", name="nothing")
    artifacts = {**ARTIFACTS, "refuser": Artifact(abi=(function,), bytecode=ARTIFACTS["refuser"].bytecode)}
    with pytest.raises(ChainReverted):
        await deployment(setting.client, tmp_path / "chain", plan=plan, artifacts=artifacts).ensure()


async def test_a_damaged_record_is_said_to_be_one(setting: Setting, tmp_path: Path) -> None:
    (tmp_path / "chain" / RECORD_FILE).write_text("{")
    with pytest.raises(StartupError, match="Move it away"):
        await deployment_of(setting.client, tmp_path / "chain").ensure()


async def test_a_sender_without_gas_is_told_at_once(setting: Setting, tmp_path: Path) -> None:
    await setting.client.request("anvil_setNextBlockBaseFeePerGas", hex(10**9))
    await setting.client.request("evm_mine")
    plan = [*PLAN, DeploymentStep(create="again")]
    artifacts = {**ARTIFACTS, "again": ARTIFACTS["echo"]}
    with pytest.raises(ChainRefused):
        await deployment(setting.client, tmp_path / "chain", plan=plan, artifacts=artifacts).ensure()


async def test_a_receipt_that_does_not_come_in_time_is_given_up(setting: Setting) -> None:
    with pytest.raises(ChainUnavailable, match="not mined"):
        await wait_for_receipt(setting.client, bytes(32), clock=SystemClock(), timeout_s=0.1)
