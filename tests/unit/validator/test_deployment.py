"""The record of the deployment, and that it belongs to the chain that answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from sparewatt.core.errors import ContractsOutdated, StartupError, WrongChain
from sparewatt.evm.abi_codec import encode_values
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.model import ChainIdentity, ContractCall
from sparewatt.validator.deployment import (
    DeploymentFile,
    NetworkTimes,
    open_deployment,
    read_deployment_file,
    read_times,
    read_value,
)

GENESIS = b"\1" * 32
CONTRACTS = {name: {"address": f"0x{index:040X}"} for index, name in enumerate(shipped_abis(), 1)}
RECORD: dict[str, Any] = {
    "chain_id": 31337,
    "genesis_hash": "0x" + GENESIS.hex(),
    "start_block": 4,
    "contracts": CONTRACTS,
}


class AnsweringNode:
    def __init__(self, chain_id: int = 31337, genesis: bytes = GENESIS) -> None:
        self._identity = ChainIdentity(chain_id, genesis)
        self.answers: dict[bytes, int] = {}
        self.raw: bytes | None = None

    async def identity(self) -> ChainIdentity:
        return self._identity

    async def call(self, call: ContractCall) -> bytes:
        return self.raw if self.raw is not None else encode_values(["uint256"], [self.answers[call.data[:4]]])


def client(node: AnsweringNode) -> EvmClient:
    anything: Any = node
    return cast(EvmClient, anything)


def a_file(**changes: Any) -> DeploymentFile:
    return msgspec.convert({**RECORD, **changes}, DeploymentFile)


async def test_contracts_and_domain_come_from_the_record() -> None:
    deployment = await open_deployment(client(AnsweringNode()), a_file())
    assert deployment.task_manager == CONTRACTS["task_manager"]["address"].lower()
    assert deployment.domain.verifying_contract == deployment.task_manager
    assert (deployment.domain.chain_id, deployment.start_block, deployment.is_local) == (31337, 4, True)


@pytest.mark.parametrize("node", [AnsweringNode(chain_id=1), AnsweringNode(genesis=b"\2" * 32)])
async def test_a_node_of_another_chain_is_refused(node: AnsweringNode) -> None:
    with pytest.raises(WrongChain, match="Give the URL and the contracts of one chain"):
        await open_deployment(client(node), a_file())


async def test_a_deployment_without_what_a_validator_needs_is_refused() -> None:
    less = {name: placed for name, placed in CONTRACTS.items() if name != "dispute_book"}
    with pytest.raises(ContractsOutdated, match="dispute_book"):
        await open_deployment(client(AnsweringNode()), a_file(contracts=less))


async def test_a_public_chain_is_not_local() -> None:
    deployment = await open_deployment(client(AnsweringNode(chain_id=1)), a_file(chain_id=1))
    assert not deployment.is_local


async def test_the_networks_times_are_read_from_the_contracts() -> None:
    contracts = Contracts(shipped_abis(), {name: placed["address"] for name, placed in CONTRACTS.items()})
    node = AnsweringNode()
    wanted = {
        ("stake_registry", "ATTEMPT_S"): 60,
        ("stake_registry", "CHALLENGE_S"): 600,
        ("task_manager", "SNAPSHOT_SPACING_S"): 10,
        ("dispute_book", "BOOK_S"): 50,
    }
    node.answers = {contracts[name].encode_call(view).data[:4]: value for (name, view), value in wanted.items()}
    times = await read_times(client(node), contracts)
    assert times == NetworkTimes(60, 600, 10, 50)
    assert times.evidence_s == 660
    node.raw = b"\1"
    with pytest.raises(ContractsOutdated, match="ATTEMPT_S"):
        await read_value(client(node), contracts, "stake_registry", "ATTEMPT_S")


def test_the_record_is_found_by_its_file_or_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "contracts.json"
    path.write_bytes(msgspec.json.encode(RECORD))
    assert read_deployment_file(path) == read_deployment_file(tmp_path) == a_file()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_what_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "contracts.json"
    path.write_bytes(content)
    with pytest.raises(StartupError, match="no record of deployed contracts"):
        read_deployment_file(path)
    with pytest.raises(StartupError, match="sparewatt chain deploy"):
        read_deployment_file(tmp_path / "none.json")
