"""Puts our contracts on a chain, once. A second run finds them and looks whether they are still what was put there.

The deployer's key does nothing else, so its nonce counts the steps done: a run that was killed goes on where it
stopped, and a local chain that lost its last second is brought back to the same addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from sparewatt.chain.abi import Artifact
from sparewatt.chain.client import ChainClient
from sparewatt.chain.confirmation import send_and_wait
from sparewatt.chain.contracts import (
    RECORD_FILE,
    Contracts,
    DeployedContract,
    DeploymentRecord,
    DeploymentStep,
    read_record,
)
from sparewatt.chain.model import ContractCall, bytes_of, hex_of
from sparewatt.chain.signer import TransactionSigner
from sparewatt.chain.web3_shim import rlp_encode
from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainReverted, ContractsMissing, StartupError
from sparewatt.core.log import Logger
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.protocol.signing import SigningKey, keccak256

_log = Logger("sparewatt.chain")


class Deployment:
    """One plan, one deployer, one folder for the record."""

    def __init__(
        self,
        client: ChainClient,
        folder: Path,
        *,
        plan: Sequence[DeploymentStep],
        artifacts: Mapping[str, Artifact],
        deployer: SigningKey,
        operator: str,
        clock: Clock,
    ) -> None:
        self._client = client
        self._folder = folder
        self._plan = plan
        self._artifacts = artifacts
        self._keys = TransactionSigner([deployer])
        self._deployer = deployer.address.lower()
        self._operator = operator.lower()
        self._clock = clock

    async def ensure(self) -> DeploymentRecord:
        """Deploy what is missing, verify what is there, and write it down. Raises ContractsMissing."""
        known = read_record(self._folder)
        identity = await self._client.identity()
        if known is not None and known.genesis_hash != hex_of(identity.genesis_hash):
            known = None  # of another chain
        if known is None:
            await self._refuse_used_key(identity.chain_id)
        addresses = self._addresses()
        done = await self._client.next_nonce(self._deployer)
        start_block = known.start_block if known else (await self._client.head()).number + 1 if not done else 0
        for number in range(done, len(self._plan)):
            await self._run_step(number, addresses, chain_id=identity.chain_id)
        placed = {name: await self._verify_contract(name, address, known) for name, address in addresses.items()}
        record = DeploymentRecord(identity.chain_id, hex_of(identity.genesis_hash), start_block, placed)
        self._write(record)
        return record

    def contracts(self, record: DeploymentRecord) -> Contracts:
        return Contracts(self._artifacts, {name: placed.address for name, placed in record.contracts.items()})

    async def _refuse_used_key(self, chain_id: int) -> None:
        """Nonces count steps only if the key never did anything else."""
        done = await self._client.next_nonce(self._deployer)
        creates = [number for number, step in enumerate(self._plan[:done]) if step.create]
        for number in creates:
            if not await self._client.code(contract_address(self._deployer, number)):
                raise ContractsMissing(
                    f"The deployer {self._deployer} has sent other transactions on chain {chain_id}. "
                    "Deploy with a key of its own."
                )

    def _addresses(self) -> dict[str, str]:
        """Known before the first transaction: they follow from the deployer's address and the step's number."""
        creates = {step.create: number for number, step in enumerate(self._plan) if step.create}
        return {name: contract_address(self._deployer, number) for name, number in creates.items()}

    async def _run_step(self, number: int, addresses: Mapping[str, str], *, chain_id: int) -> None:
        step = self._plan[number]
        call = self._call(step, addresses)
        gas_limit = await self._client.gas_limit(call, sender=self._deployer)
        fees = await self._client.fees()
        signed = self._keys.sign(
            call, sender=self._deployer, nonce=number, chain_id=chain_id, gas_limit=gas_limit, fees=fees
        )
        receipt = await send_and_wait(self._client, signed, clock=self._clock)
        if not receipt.succeeded:
            raise ChainReverted(f"step {number + 1} of the deployment ({step.create or step.call}) failed")
        _log.info("deployment_step_done", step=number, what=step.create or step.call, gas=receipt.gas_used)

    def _call(self, step: DeploymentStep, addresses: Mapping[str, str]) -> ContractCall:
        names = {**addresses, "deployer": self._deployer, "operator": self._operator}
        args = [_resolved(arg, names) for arg in step.args]
        if step.create:
            return ContractCall("", self._artifacts[step.create].deploy_data(args))
        contract, _, function = step.call.partition(".")
        return Contracts(self._artifacts, addresses)[contract].encode_call(function, *args)

    async def _verify_contract(self, name: str, address: str, known: DeploymentRecord | None) -> DeployedContract:
        code = await self._client.code(address)
        made_of = keccak256(bytes_of(self._artifacts[name].bytecode))
        placed = DeployedContract(address, hex_of(keccak256(code)), hex_of(made_of))
        before = known.contracts.get(name, placed) if known else placed
        if before.made_of != placed.made_of:
            raise ContractsMissing(
                f"The contract {name!r} at {address} is of another release. Deploy with a new key in a new folder; a "
                f"local chain can be started over by moving {self._folder} away."
            )
        if not code or before != placed:
            raise ContractsMissing(
                f"At {address} there is not the contract {name!r} that was deployed. Is CHAIN_URL the right chain?"
            )
        return placed

    def _write(self, record: DeploymentRecord) -> None:
        make_private_dir(self._folder)
        write_private(self._folder / RECORD_FILE, msgspec.json.format(msgspec.json.encode(record)))


def _resolved(arg: object, names: Mapping[str, str]) -> object:
    """`$name` is an address, also within a list."""
    match arg:
        case list():
            return [_resolved(each, names) for each in arg]
        case str() if arg.startswith("$"):
            if arg[1:] not in names:
                raise StartupError(f"The plan names {arg}, which is none of {', '.join(sorted(names))}.")
            return names[arg[1:]]
        case _:
            return arg


def contract_address(deployer: str, nonce: int) -> str:
    """Where a contract comes to stand (Ethereum's CREATE rule)."""
    return hex_of(keccak256(rlp_encode([bytes_of(deployer), nonce]))[12:])
