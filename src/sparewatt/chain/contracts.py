"""Our contracts: the compiler's artifacts, their addresses on a chain, and the record of a deployment on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

import msgspec

from sparewatt.core.errors import ContractsMissing, ContractsOutdated, StartupError
from sparewatt.evm.contract_abi import Artifact, Contracts
from sparewatt.evm.model import bytes_of, hex_of
from sparewatt.protocol.signing import keccak256

RECORD_FILE = "contracts.json"
CHAIN_TAG_DIGITS = 12
LOCAL_PLAN, PUBLIC_PLAN = "local", "public"
"""With short times and a test token of its own; with a public network's times, for a token that exists."""
PLAN_FILES = {LOCAL_PLAN: "plan.json", PUBLIC_PLAN: "plan_public.json"}


class DeploymentStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One transaction of the deployment: it creates a contract, or calls one.

    An argument `$name` is replaced by the address of that contract, of `$deployer`, `$operator` or `$guardian`, and
    `$token`, where the plan makes none, by that of the operator's own token. Times are in seconds, amounts in the
    token's smallest unit, fees in hundredths of a percent.
    """

    create: str = ""
    call: str = ""
    """`contract.function`."""
    args: tuple[str | int | bool | list[str], ...] = ()


class DeployedContract(msgspec.Struct, frozen=True):
    """`code_hash` is that of the code on the chain, `made_of` that of the artifact: they tell what has changed."""

    address: str
    code_hash: str
    made_of: str


class DeploymentRecord(msgspec.Struct, frozen=True):
    """What was deployed where, as JSON in the data directory."""

    chain_id: int
    genesis_hash: str
    start_block: int
    contracts: dict[str, DeployedContract]

    @property
    def addresses(self) -> dict[str, str]:
        return {name: deployed.address for name, deployed in self.contracts.items()}

    @property
    def chain_tag(self) -> str:
        """Tells chains apart in the books."""
        return self.genesis_hash.removeprefix("0x")[:CHAIN_TAG_DIGITS]


def shipped_artifacts() -> dict[str, Artifact]:
    """What is compiled into this release."""
    folder = resources.files(__package__).joinpath("artifacts")
    files = [file for file in folder.iterdir() if file.name.endswith(".json")] if folder.is_dir() else []
    return {file.name.removesuffix(".json"): msgspec.json.decode(file.read_bytes(), type=Artifact) for file in files}


def shipped_contracts(record: DeploymentRecord) -> Contracts:
    return Contracts(shipped_artifacts(), record.addresses)


def shipped_plan(name: str = LOCAL_PLAN) -> list[DeploymentStep]:
    """The steps of the deployment in order; none without contracts."""
    text = resources.files(__package__).joinpath(PLAN_FILES[name]).read_bytes()
    return msgspec.json.decode(text, type=list[DeploymentStep]) if shipped_artifacts() else []


def read_plan(path: Path) -> list[DeploymentStep]:
    """An operator's own plan. Raises StartupError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[DeploymentStep])
    except (OSError, msgspec.MsgspecError) as error:
        raise StartupError(f"{path} is no plan of a deployment: {error}.") from None


def find_record(folder: Path) -> DeploymentRecord | None:
    path = folder / RECORD_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=DeploymentRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StartupError(f"Cannot read {path}: {error}. Move it away and run 'sparewatt chain deploy'.") from None


def get_record(folder: Path) -> DeploymentRecord:
    record = find_record(folder)
    if record is None:
        raise ContractsMissing(
            f"There is no record of contracts in {folder}. 'sparewatt chain deploy' makes one; --data says where it is."
        )
    return record


def outdated_contracts(
    record: DeploymentRecord, artifacts: Mapping[str, Artifact], *, wanted: Iterable[str] = ()
) -> list[str]:
    """The contracts of a deployment that this release has in another form, or not at all, and those that it lacks.

    `wanted`: what the plan of this release creates.
    """
    changed = {
        name
        for name, placed in record.contracts.items()
        if name not in artifacts or made_of(artifacts[name]) != placed.made_of
    }
    return sorted(changed | (set(wanted) - set(record.contracts)))


def made_of(artifact: Artifact) -> str:
    """The hash of the code that an artifact deploys."""
    return hex_of(keccak256(bytes_of(artifact.bytecode)))


def outdated_error(names: Iterable[str], folder: Path) -> ContractsOutdated:
    return ContractsOutdated(
        f"The contracts in {folder} are of another release ({', '.join(names)}). Run the release that deployed them, "
        "or deploy this one's with 'sparewatt chain deploy --data' and a new folder, and give that to 'sparewatt chain "
        "run'. What stands in the old contracts stays there, and is withdrawn with the old release."
    )


def get_current_record(folder: Path) -> DeploymentRecord:
    """Raises ContractsMissing, or ContractsOutdated if this release cannot talk to the contracts."""
    record = get_record(folder)
    names = outdated_contracts(record, shipped_artifacts())
    if names:
        raise outdated_error(names, folder)
    return record
