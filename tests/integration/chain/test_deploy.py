"""Contracts come to a chain once, and are looked at every time after."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import RECORD_FILE, DeploymentStep, find_record, shipped_artifacts, shipped_plan
from sparewatt.chain.deployment import Deployment, send_directly, wait_for_receipt
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable, ContractsMissing, StartupError
from sparewatt.evm.contract_abi import Artifact
from sparewatt.protocol.signing import SigningKey
from tests.integration.chain.echo import ARTIFACTS, PLAN, noted
from tests.integration.chain.setting import DEPLOYER, OPERATOR, Setting, deployment_of


def deployment(
    client: ChainClient, folder: Path, *, plan: list[DeploymentStep], artifacts: dict[str, Artifact] = ARTIFACTS
) -> Deployment:
    keys = {"deployer": DEPLOYER, "operator": OPERATOR.address}
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
        clock=SystemClock(),
    )
    with pytest.raises(ContractsMissing, match="key of its own"):
        await used.ensure()
    assert not (other / RECORD_FILE).exists()


async def test_what_this_release_ships_is_deployed_whole(setting: Setting, tmp_path: Path) -> None:
    keys = {"deployer": SigningKey(bytes(31) + b"\x0f"), "operator": OPERATOR.address}
    shipped = Deployment(
        setting.client,
        tmp_path / "shipped",
        plan=shipped_plan(),
        artifacts=shipped_artifacts(),
        clock=SystemClock(),
        **keys,  # type: ignore[arg-type]
    )
    record = await shipped.ensure()
    assert set(record.contracts) == set(shipped_artifacts())
    assert await shipped.ensure() == record


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
