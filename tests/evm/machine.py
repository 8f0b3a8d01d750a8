"""An EVM in this process, with the compiled contracts of the package.

A call returns its decoded answer or raises Reverted with the contract's reason. EVM_ARTIFACTS names another folder of
compiled contracts, e.g. by another code generator.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_limit = sys.getrecursionlimit()
import boa  # noqa: E402 (the limit must be read first)
from eth_abi.abi import decode, encode  # noqa: E402
from vyper.cli.vyper_compile import compile_files  # noqa: E402

from sparewatt.protocol.signing import keccak256 as keccak  # noqa: E402
from tests.evm.reads import Reads  # noqa: E402

sys.setrecursionlimit(max(_limit, 10_000))  # the EVM's own calls nest deeper than Python's default allows

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARTIFACTS = ROOT / "src" / "sparewatt" / "chain" / "artifacts"
CHAIN_ID = 31_337
START = 1_800_000_000
GAS = 30_000_000

READS = Reads()
READS.trace(boa.env.evm.vm.state.computation_class.opcodes)


class Reverted(Exception):
    """The call reverted. `reason` is the contract's word, empty if arithmetic or the ABI decoder reverted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "(no reason)")
        self.reason = reason


def compiled(path: Path) -> dict[str, Any]:
    """Compile a contract of `tests/evm/sources`."""
    output = compile_files([str(path)], ["abi", "bytecode"], paths=[str(ROOT)], include_sys_path=False)
    found: dict[str, Any] = output[path]
    return found


@cache
def artifact(name: str) -> dict[str, Any]:
    if (source := HERE / "sources" / f"{name}.vy").exists():
        return compiled(source)
    override = Path(os.environ.get("EVM_ARTIFACTS", "/nonexistent")) / f"{name}.json"
    path = override if override.exists() else ARTIFACTS / f"{name}.json"
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def type_of(entry: dict[str, Any]) -> str:
    """The ABI's canonical type, with tuples spelled out."""
    kind: str = entry["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(type_of(part) for part in entry["components"]) + ")" + kind[5:]


class Function:
    def __init__(self, abi: dict[str, Any]) -> None:
        self.inputs = [type_of(entry) for entry in abi["inputs"]]
        self.outputs = [type_of(entry) for entry in abi.get("outputs", [])]
        self.is_view = abi.get("stateMutability") in {"view", "pure"}
        self.selector = keccak(f"{abi.get('name', '')}({','.join(self.inputs)})".encode())[:4]

    def data(self, args: tuple[Any, ...]) -> bytes:
        return self.selector + encode(self.inputs, args)

    def answer(self, output: bytes) -> Any:
        values = decode(self.outputs, output)
        return values[0] if len(values) == 1 else values


@cache
def functions_of(name: str) -> dict[str, Function]:
    return {entry["name"]: Function(entry) for entry in artifact(name)["abi"] if entry["type"] == "function"}


@cache
def events_of(name: str) -> dict[bytes, str]:
    events = (entry for entry in artifact(name)["abi"] if entry["type"] == "event")
    return {keccak(f"{e['name']}({','.join(type_of(i) for i in e['inputs'])})".encode()): e["name"] for e in events}


LAST_LOGS: list[tuple[bytes, list[int], bytes]] = []
"""The logs of the last call that had any, of all contracts: address, topics, data."""


class Contract:
    """One deployed contract. `who` sends the transaction; `events` are the contract's own of the last that had any."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.functions = functions_of(name)
        self.events: list[str] = []
        self.gas_used = 0
        self.calldata = b""

    def __getattr__(self, function: str) -> Any:
        if function not in self.functions:
            raise AttributeError(f"{self.name} has no function {function}")

        def call(*args: Any, who: str = "0x" + "99" * 20, gas: int = GAS) -> Any:
            return self.send(function, args, who=who, gas=gas)

        return call

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The arguments of this contract's events of the last call that had any, whoever was called."""
        abi = next(e for e in artifact(self.name)["abi"] if e["type"] == "event" and e["name"] == event)
        topic = next(topic for topic, name in events_of(self.name).items() if name == event)
        return [
            arguments_of(abi["inputs"], topics[1:], data)
            for who, topics, data in LAST_LOGS
            if who == bytes.fromhex(self.address[2:]) and topics[0].to_bytes(32, "big") == topic
        ]

    def send(self, function: str, args: tuple[Any, ...], *, who: str, gas: int = GAS) -> Any:
        called = self.functions[function]
        data = called.data(args)
        if not called.is_view or gas != GAS:
            return called.answer(self.raw(data, who=who, gas=gas))
        return READS.answer((self.address, who, data), lambda: called.answer(self.raw(data, who=who)))

    def raw(self, data: bytes, *, who: str, gas: int = GAS) -> bytes:
        self.calldata = data
        done = boa.env.execute_code(to_address=boa_address(self.address), sender=boa_address(who), data=data, gas=gas)
        self.gas_used = done.get_gas_used()
        if done.is_error:
            raise Reverted(reason_of(bytes(done.output)))
        if logs := done.get_log_entries():
            LAST_LOGS[:] = logs
            known, me = events_of(self.name), bytes.fromhex(self.address[2:])
            self.events = [known[topics[0].to_bytes(32, "big")] for who_, topics, _ in logs if who_ == me]
        output: bytes = done.output
        return output


def arguments_of(inputs: list[dict[str, Any]], topics: list[int], data: bytes) -> dict[str, Any]:
    indexed = [entry for entry in inputs if entry["indexed"]]
    plain = [entry for entry in inputs if not entry["indexed"]]
    values = decode([type_of(entry) for entry in plain], data)
    words = (decode([type_of(e)], topic.to_bytes(32, "big"))[0] for e, topic in zip(indexed, topics, strict=True))
    return {
        **{entry["name"]: value for entry, value in zip(indexed, words, strict=True)},
        **{entry["name"]: value for entry, value in zip(plain, values, strict=True)},
    }


def boa_address(address: str) -> Any:
    return boa.util.abi.Address(address)


def reason_of(output: bytes) -> str:
    if output[:4] == keccak(b"Error(string)")[:4]:
        text: str = decode(["string"], output[4:])[0]
        return text
    return ""


def deploy(name: str, *args: Any, who: str = "0x" + "dd" * 20) -> Contract:
    compiled = artifact(name)
    kinds = [type_of(i) for entry in compiled["abi"] if entry["type"] == "constructor" for i in entry["inputs"]]
    code = bytes.fromhex(compiled["bytecode"][2:]) + encode(kinds, args)
    sender, evm = boa_address(who), boa.env.evm
    READS.forget_all()
    address = evm.generate_create_address(sender)
    done = evm.deploy_code(
        sender=sender, origin=sender, target_address=address, gas=GAS, gas_price=0, value=0, bytecode=code
    )
    if done.is_error:
        raise Reverted(reason_of(bytes(done.output)))
    return Contract(name, str(address).lower())


def set_chain_id(chain_id: int) -> None:
    boa.env.evm.patch.chain_id = chain_id
    READS.forget_all()


set_chain_id(CHAIN_ID)


def now() -> int:
    stamp: int = boa.env.evm.patch.timestamp
    return stamp


def set_time(at: int) -> None:
    boa.env.evm.patch.timestamp = at
    READS.forget_time()


def wait(seconds: int) -> None:
    set_time(now() + seconds)


@contextmanager
def refused(reason: str) -> Iterator[None]:
    """The call in the block must revert with exactly this reason."""
    with pytest.raises(Reverted) as caught:
        yield
    assert caught.value.reason == reason


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll the chain back to its state before the block, time included."""
    at = now()
    with READS.restored(), boa.env.anchor():
        yield
    set_time(at)
