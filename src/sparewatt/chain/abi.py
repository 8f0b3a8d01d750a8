"""Contracts as their ABI describes them: calls become bytes, logs become named events. Pure; nothing is sent here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sparewatt.chain.model import ContractCall, RawLog, bytes_of, hex_of
from sparewatt.chain.web3_shim import DecodingError, EncodingError, abi_decode, abi_encode
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.signing import keccak256


class AbiParam(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    components: tuple[AbiParam, ...] = ()
    indexed: bool = False

    def canonical_type(self) -> str:
        """A tuple's type is spelt out, its array brackets kept: `(address,uint256)[]`."""
        if not self.type.startswith("tuple"):
            return self.type
        return f"({','.join(each.canonical_type() for each in self.components)}){self.type.removeprefix('tuple')}"

    @property
    def is_dynamic_topic(self) -> bool:
        """An indexed value of such a type is in the log as its hash only."""
        return self.type in {"string", "bytes"} or self.type.endswith("]") or self.type.startswith("tuple")


class AbiEntry(msgspec.Struct, frozen=True):
    """A function, an event or the constructor."""

    type: str
    name: str = ""
    inputs: tuple[AbiParam, ...] = ()
    outputs: tuple[AbiParam, ...] = ()

    def signature_hash(self) -> bytes:
        return keccak256(f"{self.name}({','.join(each.canonical_type() for each in self.inputs)})".encode())


class Artifact(msgspec.Struct, frozen=True):
    """What the compiler made of one contract, as it is committed."""

    abi: tuple[AbiEntry, ...]
    bytecode: str = "0x"

    def deploy_data(self, args: Sequence[object]) -> bytes:
        """The data of the transaction that makes the contract."""
        made = [entry for entry in self.abi if entry.type == "constructor"]
        return bytes_of(self.bytecode) + _encode(made[0].inputs if made else (), args, of="constructor")


@dataclass(frozen=True, slots=True)
class Contract:
    """A deployed contract."""

    name: str
    address: str
    abi: tuple[AbiEntry, ...]
    _events: dict[bytes, AbiEntry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        events = {entry.signature_hash(): entry for entry in self.abi if entry.type == "event"}
        object.__setattr__(self, "_events", events)

    def encode_call(self, function: str, *args: object, gas_limit: int | None = None) -> ContractCall:
        """Raises ValueError where the arguments do not fit: a mistake of ours, not of a user."""
        entry = self._function(function, len(args))
        return ContractCall(
            self.address, entry.signature_hash()[:4] + _encode(entry.inputs, args, of=function), gas_limit
        )

    def decode_result(self, function: str, data: bytes, *, n_args: int = 0) -> Any:
        """What a call returned: one value, or a tuple of them."""
        outputs = self._function(function, n_args).outputs
        values = abi_decode([each.canonical_type() for each in outputs], data)
        return values[0] if len(values) == 1 else values

    def decode_log(self, log: RawLog, *, ordinal: int) -> ChainEvent | None:
        """The event behind a log, or None if this contract's ABI knows none like it."""
        entry = self._events.get(log.topics[0]) if log.topics else None
        if entry is None:
            return None
        try:
            args = _event_args(entry, log)
        except DecodingError:
            return None
        place = (log.block_number, log.log_index, log.block_hash, log.tx_hash, ordinal)
        return ChainEvent(*place, contract=self.name, event=entry.name, args=args)

    def _function(self, name: str, n_args: int) -> AbiEntry:
        for entry in self.abi:
            if entry.type == "function" and entry.name == name and len(entry.inputs) == n_args:
                return entry
        raise ValueError(f"{self.name} has no function {name} with {n_args} arguments")


def _encode(params: Sequence[AbiParam], args: Sequence[object], *, of: str) -> bytes:
    try:
        return bytes(abi_encode([each.canonical_type() for each in params], args))
    except (EncodingError, TypeError, ValueError) as error:
        raise ValueError(f"the arguments of {of} do not fit: {error}") from None


def _event_args(entry: AbiEntry, log: RawLog) -> dict[str, Any]:
    plain = [each for each in entry.inputs if not each.indexed]
    values = iter(abi_decode([each.canonical_type() for each in plain], log.data))
    topics = iter(log.topics[1:])
    return {
        each.name: _topic(each, next(topics, b"")) if each.indexed else as_json(next(values)) for each in entry.inputs
    }


def _topic(param: AbiParam, topic: bytes) -> Any:
    if param.is_dynamic_topic:
        return hex_of(topic)
    (value,) = abi_decode([param.canonical_type()], topic)
    return as_json(value)


def as_json(value: Any) -> Any:
    """Bytes in hex, tuples as lists; integers stay whole, whatever their size."""
    match value:
        case bytes():
            return hex_of(value)
        case tuple() | list():
            return [as_json(each) for each in value]
        case _:
            return value
