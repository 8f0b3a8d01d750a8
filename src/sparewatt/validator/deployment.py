"""The contracts that a validator works with: their addresses, from the record of the deployment, and their times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.errors import ContractsOutdated, StartupError, WrongChain
from sparewatt.evm.abi_codec import AbiError
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.model import ChainIdentity, hex_of
from sparewatt.protocol.signing import Domain
from sparewatt.protocol.typed_message import contract_domain

LOCAL_CHAIN_IDS = frozenset({31337, 1337})
"""Chains for development: the token is test money, and their node's bloom filters are right."""
_NEEDED = (
    *("stake_registry", "task_manager", "deployment_order", "provider_registry"),
    *("lease_moves", "escrow", "dispute", "dispute_book", "token"),
)


class _Placed(msgspec.Struct, frozen=True):
    address: str


class DeploymentFile(msgspec.Struct, frozen=True):
    """`contracts.json`, as `sparewatt chain deploy` writes it."""

    chain_id: int
    genesis_hash: str
    start_block: int
    contracts: dict[str, _Placed]

    def require(self, identity: ChainIdentity) -> None:
        """Raises WrongChain."""
        if (self.chain_id, self.genesis_hash) != (identity.chain_id, hex_of(identity.genesis_hash)):
            raise WrongChain(
                f"The contracts were deployed on chain {self.chain_id} (first block {self.genesis_hash[:18]}…), but "
                f"the node at the chain's URL has chain {identity.chain_id} (first block "
                f"{hex_of(identity.genesis_hash)[:18]}…). Give the URL and the contracts of one chain."
            )


@dataclass(frozen=True, slots=True)
class NetworkTimes:
    """In seconds of chain time, as the contracts have them."""

    attempt_s: int
    challenge_s: int
    snapshot_spacing_s: int
    book_s: int

    @property
    def evidence_s(self) -> int:
        """How long after its opening an attempt can be disputed."""
        return self.attempt_s + self.challenge_s


@dataclass(frozen=True, slots=True)
class MarketDeployment:
    identity: ChainIdentity
    contracts: Contracts
    start_block: int
    domain: Domain
    """Of `task_manager`: what votes and heartbeats are signed for."""

    @property
    def is_local(self) -> bool:
        return self.identity.chain_id in LOCAL_CHAIN_IDS

    @property
    def task_manager(self) -> str:
        return self.contracts["task_manager"].address


def read_deployment_file(path: Path) -> DeploymentFile:
    """Raises StartupError."""
    path = path / "contracts.json" if path.is_dir() else path
    try:
        return msgspec.json.decode(path.read_bytes(), type=DeploymentFile)
    except OSError as error:
        raise StartupError(
            f"Cannot read {path}: {error.strerror}. --contracts is the file that 'sparewatt chain deploy' made."
        ) from None
    except msgspec.MsgspecError:
        raise StartupError(f"{path} is no record of deployed contracts (contracts.json).") from None


async def open_deployment(client: EvmClient, file: DeploymentFile) -> MarketDeployment:
    """Raises WrongChain, ContractsOutdated, ChainUnavailable."""
    identity = await client.identity()
    file.require(identity)
    if missing := [name for name in _NEEDED if name not in file.contracts]:
        raise ContractsOutdated(f"The deployment lacks {', '.join(missing)}: it is of another release.")
    contracts = Contracts(shipped_abis(), {name: placed.address for name, placed in file.contracts.items()})
    domain = contract_domain(chain_id=identity.chain_id, contract=contracts["task_manager"].address)
    return MarketDeployment(identity, contracts, file.start_block, domain)


async def read_times(client: EvmClient, contracts: Contracts) -> NetworkTimes:
    """Raises ChainUnavailable, ContractsOutdated."""
    return NetworkTimes(
        attempt_s=await read_value(client, contracts, "stake_registry", "ATTEMPT_S"),
        challenge_s=await read_value(client, contracts, "stake_registry", "CHALLENGE_S"),
        snapshot_spacing_s=await read_value(client, contracts, "task_manager", "SNAPSHOT_SPACING_S"),
        book_s=await read_value(client, contracts, "dispute_book", "BOOK_S"),
    )


async def read_value(client: EvmClient, contracts: Contracts, contract: str, function: str, *args: object) -> Any:
    """What a view of a contract says at the newest block. Raises ChainUnavailable, ChainReverted, ContractsOutdated."""
    called = contracts[contract]
    data = await client.call(called.encode_call(function, *args))
    try:
        return called.decode_result(function, data, n_args=len(args))
    except AbiError:
        raise ContractsOutdated(f"{contract}.{function} does not answer as this release's contract does.") from None
