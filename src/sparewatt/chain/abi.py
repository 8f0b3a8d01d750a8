"""The ABI codec: encodes calls of a contract, and decodes its results and event logs. Pure: nothing is sent here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode
from eth_abi.exceptions import DecodingError, EncodingError

from sparewatt.chain.model import ContractCall, RawLog, bytes_of, hex_of
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
        """The value that a call returned, or a tuple of several."""
        values = abi_decode(_types(self._function(function, n_args).outputs), data)
        return values[0] if len(values) == 1 else values

    def decode_log(self, log: RawLog, *, ordinal: int) -> ChainEvent | None:
        """None for a log that is no event of this contract's ABI."""
        entry = self._events.get(log.topics[0]) if log.topics else None
        if entry is None:
            return None
        try:
            args = _event_args(entry, log)
        except DecodingError:
            return None
        position = (log.block_number, log.log_index, log.block_hash, log.tx_hash, ordinal)
        return ChainEvent(*position, contract=self.name, event=entry.name, args=args)

    def _function(self, name: str, n_args: int) -> AbiEntry:
        for entry in self._abi:
            if entry.type == "function" and entry.name == name and len(entry.inputs) == n_args:
                return entry
        raise ValueError(f"{self.name} has no function {name} with {n_args} arguments")


def _types(params: Iterable[AbiParam]) -> list[str]:
    return [param.canonical_type() for param in params]


def _encode(params: Sequence[AbiParam], args: Sequence[object], *, of: str) -> bytes:
    try:
        return bytes(abi_encode(_types(params), args))
    except (EncodingError, TypeError, ValueError) as error:
        raise ValueError(f"the arguments of {of} do not fit: {error}") from None


def _event_args(entry: AbiEntry, log: RawLog) -> dict[str, Any]:
    values = iter(abi_decode(_types(param for param in entry.inputs if not param.indexed), log.data))
    topics = iter(log.topics[1:])
    return {
        param.name: _decode_topic(param, next(topics, b"")) if param.indexed else as_json(next(values))
        for param in entry.inputs
    }


def _decode_topic(param: AbiParam, topic: bytes) -> Any:
    if param.is_dynamic_topic:
        return hex_of(topic)
    (value,) = abi_decode([param.canonical_type()], topic)
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
