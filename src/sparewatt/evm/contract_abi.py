"""Contracts by their ABI: encodes calls, decodes results and event logs. Pure: nothing is sent here.

The ABIs of this release's contracts are in `abi/`, one file each, written by `make contracts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from sparewatt.core.errors import ContractsMissing
from sparewatt.evm.abi_codec import AbiError, decode_values, encode_values
from sparewatt.evm.model import ContractCall, RawLog, bytes_of, hex_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.signing import keccak256


class AbiParam(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    components: tuple[AbiParam, ...] = ()
    indexed: bool = False

    def canonical_type(self) -> str:
        """A tuple is written as its members, with its array brackets: `(address,uint256)[]`."""
        if not self.type.startswith("tuple"):
            return self.type
        return f"({','.join(_types(self.components))}){self.type.removeprefix('tuple')}"

    @property
    def is_dynamic_topic(self) -> bool:
        """Of an indexed value of such a type, the log holds only the hash."""
        return self.type in {"string", "bytes"} or self.type.endswith("]") or self.type.startswith("tuple")


class AbiEntry(msgspec.Struct, frozen=True):
    """A function, an event or the constructor."""

    type: str
    name: str = ""
    inputs: tuple[AbiParam, ...] = ()
    outputs: tuple[AbiParam, ...] = ()

    def signature_hash(self) -> bytes:
        return keccak256(f"{self.name}({','.join(_types(self.inputs))})".encode())


class Artifact(msgspec.Struct, frozen=True):
    """The compiler's output for one contract, as it is committed."""

    abi: tuple[AbiEntry, ...]
    bytecode: str = "0x"

    def deploy_data(self, args: Sequence[object]) -> bytes:
        """The data of the transaction that creates the contract."""
        params = next((entry.inputs for entry in self.abi if entry.type == "constructor"), ())
        return bytes_of(self.bytecode) + _encode(params, args, of="constructor")


class Contract:
    """A deployed contract."""

    def __init__(self, name: str, address: str, abi: tuple[AbiEntry, ...]) -> None:
        self.name = name
        self.address = address
        self._abi = abi
        self._events = {entry.signature_hash(): entry for entry in abi if entry.type == "event"}

    def encode_call(self, function: str, *args: object) -> ContractCall:
        """Raises ValueError for arguments that do not fit the function: a mistake of ours, not of a user."""
        entry = self._function(function, len(args))
        return ContractCall(self.address, entry.signature_hash()[:4] + _encode(entry.inputs, args, of=function))

    def decode_result(self, function: str, data: bytes, *, n_args: int = 0) -> Any:
        """The value that a call returned, or a tuple of several. Raises AbiError."""
        values = decode_values(_types(self._function(function, n_args).outputs), data)
        return values[0] if len(values) == 1 else values

    def decode_log(self, log: RawLog, *, ordinal: int) -> ChainEvent | None:
        """None for a log that is no event of this contract's ABI."""
        entry = self._events.get(log.topics[0]) if log.topics else None
        if entry is None:
            return None
        try:
            args = _event_args(entry, log)
        except AbiError:
            return None
        position = (log.block_number, log.log_index, log.block_hash, log.tx_hash, ordinal)
        return ChainEvent(*position, contract=self.name, event=entry.name, args=args, unix_s=log.unix_s)

    def _function(self, name: str, n_args: int) -> AbiEntry:
        for entry in self._abi:
            if entry.type == "function" and entry.name == name and len(entry.inputs) == n_args:
                return entry
        raise ValueError(f"{self.name} has no function {name} with {n_args} arguments")


class Contracts:
    """All our contracts on one chain, by name and by address."""

    def __init__(
        self, artifacts: Mapping[str, Artifact], addresses: Mapping[str, str], *, foreign: Collection[str] = ()
    ) -> None:
        """`foreign`: names of contracts that others use as well, of whose logs only some concern us."""
        self.foreign = frozenset(foreign)
        self._by_name = {
            name: Contract(name, addresses[name].lower(), artifacts[name].abi)
            for name in artifacts
            if name in addresses
        }
        self._by_address = {contract.address: contract for contract in self._by_name.values()}

    def __getitem__(self, name: str) -> Contract:
        try:
            return self._by_name[name]
        except KeyError:
            raise ContractsMissing(
                f"The contract {name!r} is not deployed on this chain. 'sparewatt chain deploy' does it."
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def addresses(self) -> dict[str, str]:
        return {name: contract.address for name, contract in sorted(self._by_name.items())}

    def decode_logs(self, logs: Sequence[RawLog]) -> list[ChainEvent]:
        """The events in the logs of whole blocks, in the chain's order. Logs that no ABI describes are left out."""
        counts: Counter[tuple[bytes, bool]] = Counter()
        events = []
        for log in sorted(logs, key=lambda log: (log.block_number, log.log_index)):
            contract = self._by_address.get(log.address)
            # Counted apart: how many logs of a foreign contract were fetched must not change the numbers of ours.
            counted = (log.tx_hash, contract is not None and contract.name in self.foreign)
            event = contract.decode_log(log, ordinal=counts[counted]) if contract else None
            counts[counted] += 1
            if event is not None:
                events.append(event)
        return events


@cache
def shipped_abis() -> Mapping[str, Artifact]:
    """The functions and events of this release's contracts, without their bytecode."""
    files = [file for file in resources.files(__package__).joinpath("abi").iterdir() if file.name.endswith(".json")]
    return {file.name.removesuffix(".json"): msgspec.json.decode(file.read_bytes(), type=Artifact) for file in files}


def _types(params: Iterable[AbiParam]) -> list[str]:
    return [param.canonical_type() for param in params]


def _encode(params: Sequence[AbiParam], args: Sequence[object], *, of: str) -> bytes:
    try:
        return encode_values(_types(params), args)
    except AbiError as error:
        raise ValueError(f"the arguments of {of} do not fit: {error}") from None


def _event_args(entry: AbiEntry, log: RawLog) -> dict[str, Any]:
    indexed = sum(param.indexed for param in entry.inputs)
    if len(log.topics) != 1 + indexed:
        raise AbiError("the log has another number of topics than the event")
    values = iter(decode_values(_types(param for param in entry.inputs if not param.indexed), log.data))
    topics = iter(log.topics[1:])
    return {
        param.name: _decode_topic(param, next(topics)) if param.indexed else as_json(next(values))
        for param in entry.inputs
    }


def _decode_topic(param: AbiParam, topic: bytes) -> Any:
    if param.is_dynamic_topic:
        return hex_of(topic)
    (value,) = decode_values([param.canonical_type()], topic)
    return as_json(value)


def as_json(value: Any) -> Any:
    """Bytes as hex, tuples as lists. Integers stay integers, whatever their size."""
    match value:
        case bytes():
            return hex_of(value)
        case tuple() | list():
            return [as_json(each) for each in value]
        case _:
            return value
