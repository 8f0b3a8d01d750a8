"""Meta-transactions (`…_with_signature`): valid once, until the deadline, and not with any bit changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.evm.machine import ARTIFACTS, Reverted, artifact, functions_of, refused, rolled_back, wait
from tests.evm.network import Network
from tests.evm.twin_cases import Twin, all_twins

ARRAYS = ("only", "ignore")


def flips(kind: str, value: Any) -> Iterator[Any]:
    """Every value of the type that differs in one bit."""
    if kind == "address":
        for bit in range(160):
            yield f"0x{int(value, 16) ^ (1 << bit):040x}"
    elif kind.startswith("uint"):
        for bit in range(int(kind[4:])):
            yield value ^ (1 << bit)
    elif kind == "bool":
        yield not value
    elif kind.startswith("bytes"):
        for bit in range(8 * len(value)):
            yield bytes(byte ^ (1 << bit % 8 if i == bit // 8 else 0) for i, byte in enumerate(value))


def mutants(entry: dict[str, Any], value: Any) -> Iterator[Any]:
    if entry["type"] == "tuple":
        for i, part in enumerate(entry["components"]):
            for mutant in mutants(part, value[i]):
                yield (*value[:i], mutant, *value[i + 1 :])
    elif not entry["type"].endswith("[]"):
        yield from flips(entry["type"], value)


def mutated_calls(twin: Twin) -> list[tuple[Any, ...]]:
    abi = next(e for e in artifact(twin.contract.name)["abi"] if e.get("name") == twin.function)
    calls = []
    for i, entry in enumerate(abi["inputs"]):
        if i not in twin.unsigned:
            values = mutants(entry, twin.arguments[i])
            calls += [(*twin.arguments[:i], value, *twin.arguments[i + 1 :]) for value in values]
    return calls


def test_every_twin_of_every_contract_is_tried(network: Network) -> None:
    tried = {(case.contract.name, case.function) for case in all_twins(network)}
    names = [path.stem for path in ARTIFACTS.glob("*.json")]
    known = {(n, f) for n in names for f in functions_of(n) if f.endswith("_with_signature")}
    known -= {(name, "withdraw_with_signature") for name in ("stake_registry", "dispute_book")}  # the same module
    assert tried == known


def test_a_twin_works_once(network: Network) -> None:
    for twin in all_twins(network):
        with rolled_back():
            twin.contract.send(twin.function, twin.arguments, who="0x" + "77" * 20)
            with refused("NOT_SIGNED_BY_ACCOUNT"):
                twin.contract.send(twin.function, twin.arguments, who="0x" + "77" * 20)


def test_a_twin_has_a_deadline(network: Network) -> None:
    for twin in all_twins(network):
        with rolled_back():
            wait(101)
            with refused("DEADLINE_PASSED"):
                twin.contract.send(twin.function, twin.arguments, who="0x" + "77" * 20)


def require_refused(twin: Twin, calls: list[tuple[Any, ...]]) -> None:
    nonce = twin.contract.nonces(twin.signer.address)
    for arguments in calls:
        with pytest.raises(Reverted):
            twin.contract.send(twin.function, arguments, who="0x" + "77" * 20)
    assert twin.contract.nonces(twin.signer.address) == nonce


def test_a_twin_with_one_bit_changed_is_refused(network: Network) -> None:
    """A sample here; all bits in the soak."""
    rng = random.Random(7)
    for twin in all_twins(network):
        require_refused(twin, rng.sample(mutated_calls(twin), 40))
