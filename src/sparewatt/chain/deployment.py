"""Deploys our contracts, once. A later run verifies that the code at their addresses is still the code it deployed.

The deployer's key signs nothing else, so its nonce counts the steps that are done: an interrupted run continues where
it stopped, and a local chain that lost its last second gets the same contracts at the same addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import (
    RECORD_FILE,
    DeployedContract,
    DeploymentRecord,
    DeploymentStep,
    find_record,
    made_of,
    outdated_contracts,
    outdated_error,
    shipped_artifacts,
    shipped_plan,
)
from sparewatt.chain.signer import DEPLOYER_KEY, GUARDIAN_KEY, OPERATOR_KEY, TransactionSigner, load_or_make_key
from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable, ContractsMissing, StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.evm.contract_abi import Artifact, Contracts
from sparewatt.evm.model import ContractCall, TransactionReceipt, hex_of
from sparewatt.evm.transactions import contract_address
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.protocol.signing import SigningKey, keccak256

_log = Logger("sparewatt.chain")
POLL_S, POLL_S_MAX = 0.02, 1.0
WAIT_S = 120.0
"""Ten blocks of a slow chain."""


@dataclass(frozen=True, slots=True)
class Deployment:
    client: ChainClient
    folder: Path
    """Where the record is written."""
    plan: Sequence[DeploymentStep]
    artifacts: Mapping[str, Artifact]
    deployer: SigningKey
    operator: str
    guardian: str
    """Strikes payout roots and suspends providers. Its key should not be where the operator's is."""
    clock: Clock
    token: str | None = None
    """For a plan that makes none."""

    async def ensure(self) -> DeploymentRecord:
        """Run the steps that are missing, verify all contracts, and write the record. Raises ContractsMissing."""
        known = find_record(self.folder)
        identity = await self.client.identity()
        if known is not None and known.genesis_hash != hex_of(identity.genesis_hash):
            known = None  # of another chain
        if known is not None and (names := outdated_contracts(known, self.artifacts, wanted=self._addresses())):
            raise outdated_error(names, self.folder)
        steps_done = await self.client.next_nonce(self.deployer.address)
        if known is None:
            await self._refuse_used_key(steps_done, chain_id=identity.chain_id)
        addresses = self._addresses()
        start_block = known.start_block if known else (await self.client.head()).number + 1 if not steps_done else 0
        for number in range(steps_done, len(self.plan)):
            await self._run_step(number, addresses, chain_id=identity.chain_id)
        deployed = {name: await self._verify_contract(name, address, known) for name, address in addresses.items()}
        record = DeploymentRecord(identity.chain_id, hex_of(identity.genesis_hash), start_block, deployed)
        make_private_dir(self.folder)
        write_private(self.folder / RECORD_FILE, msgspec.json.format(msgspec.json.encode(record)))
        return record

    async def _refuse_used_key(self, steps_done: int, *, chain_id: int) -> None:
        """The nonce counts steps only if the key never signed anything else."""
        for number, step in enumerate(self.plan[:steps_done]):
            if step.create and not await self.client.code(contract_address(self.deployer.address, number)):
                raise ContractsMissing(
                    f"The deployer {self.deployer.address} has sent other transactions on chain {chain_id}. "
                    "Deploy with a key of its own."
                )

    def _addresses(self) -> dict[str, str]:
        """Known before the first transaction: they follow from the deployer's address and the number of the step."""
        steps = enumerate(self.plan)
        return {step.create: contract_address(self.deployer.address, number) for number, step in steps if step.create}

    async def _run_step(self, number: int, addresses: Mapping[str, str], *, chain_id: int) -> None:
        step = self.plan[number]
        call = self._call(step, addresses)
        receipt = await send_directly(
            self.client, call, self.deployer, nonce=number, chain_id=chain_id, clock=self.clock
        )
        if not receipt.succeeded:
            raise ChainReverted(f"step {number + 1} of the deployment ({step.create or step.call}) failed")
        _log.info("deployment_step_done", step=number, what=step.create or step.call, gas=receipt.gas_used)

    def _call(self, step: DeploymentStep, addresses: Mapping[str, str]) -> ContractCall:
        keys = {"deployer": self.deployer.address, "operator": self.operator, "guardian": self.guardian}
        names = {**({"token": self.token} if self.token else {}), **addresses, **keys}
        args = [_resolve(arg, names) for arg in step.args]
        if step.create:
            return ContractCall("", self.artifacts[step.create].deploy_data(args))
        contract, _, function = step.call.partition(".")
        return Contracts(self.artifacts, addresses)[contract].encode_call(function, *args)

    async def _verify_contract(self, name: str, address: str, known: DeploymentRecord | None) -> DeployedContract:
        code = await self.client.code(address)
        deployed = DeployedContract(address, hex_of(keccak256(code)), made_of(self.artifacts[name]))
        before = known.contracts.get(name, deployed) if known else deployed
        if not code or before != deployed:
            raise ContractsMissing(
                f"At {address} there is not the contract {name!r} that was deployed. Is CHAIN_URL the right chain?"
            )
        return deployed


def shipped_deployment(
    client: ChainClient,
    folder: Path,
    *,
    clock: Clock,
    rng: Rng,
    plan: Sequence[DeploymentStep] | None = None,
    token: str | None = None,
    guardian: str | None = None,
) -> Deployment:
    """This release's contracts, by its own plan or an operator's, with the keys in `folder`.

    A guardian whose key is elsewhere is named by its address.
    """
    return Deployment(
        client,
        folder,
        plan=shipped_plan() if plan is None else plan,
        artifacts=shipped_artifacts(),
        deployer=load_or_make_key(folder / DEPLOYER_KEY, rng=rng),
        operator=load_or_make_key(folder / OPERATOR_KEY, rng=rng).address,
        guardian=guardian or load_or_make_key(folder / GUARDIAN_KEY, rng=rng).address,
        clock=clock,
        token=token,
    )


def _resolve(arg: object, names: Mapping[str, str]) -> object:
    """Replace `$name` by its address, also within a list."""
    match arg:
        case list():
            return [_resolve(each, names) for each in arg]
        case str() if arg.startswith("$"):
            if arg[1:] not in names:
                raise StartupError(f"The plan names {arg}, which is none of {', '.join(sorted(names))}.")
            return names[arg[1:]]
        case _:
            return arg


async def send_directly(
    client: ChainClient, call: ContractCall, key: SigningKey, *, nonce: int, chain_id: int, clock: Clock
) -> TransactionReceipt:
    """Send one transaction without the outbox, which would survive a crash, and wait for its receipt.

    Raises ChainReverted if the call would revert, ChainRefused if the node does not take the transaction.
    """
    gas_limit, fees = await client.gas_limit(call, sender=key.address), await client.fees()
    signed = TransactionSigner([key]).sign(
        call, sender=key.address, nonce=nonce, chain_id=chain_id, gas_limit=gas_limit, fees=fees
    )
    if not await client.send(signed.raw) and not await client.has_transaction(signed.tx_hash):
        raise ChainRefused("The chain's node does not take the transaction. Does its sender have gas?")
    return await wait_for_receipt(client, signed.tx_hash, clock=clock)


async def wait_for_receipt(
    client: ChainClient, tx_hash: bytes, *, clock: Clock, timeout_s: float = WAIT_S
) -> TransactionReceipt:
    """Polls with exponential back-off. Raises ChainUnavailable when the time is over."""
    deadline_s, pause_s = clock.now_s() + timeout_s, POLL_S
    while clock.now_s() < deadline_s:
        receipt = await client.receipt(tx_hash)
        if receipt is not None:
            return receipt
        await sleep_until(clock, clock.now_s() + pause_s)
        pause_s = min(POLL_S_MAX, 1.5 * pause_s)
    raise ChainUnavailable(f"The transaction was not mined within {timeout_s:.0f} s.")
