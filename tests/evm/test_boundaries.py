"""Boundary values: 0, 1 and the largest for every argument of every function, by a caller with money and no rights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.evm.auction import RENTER, place_order
from tests.evm.machine import Reverted, artifact
from tests.evm.network import USD, Network, key

ATTACKER = key(95).address
CONTRACTS = ["registry", "stakes", "escrow", "tasks", "orders", "moves", "dispute", "book", "settlement", "token"]


TEXTS: dict[str, tuple[Any, Any, Any]] = {
    "bool": (False, True, True),
    "string": ("", "x", "x" * 200),
    "bytes": (b"", b"\1", b"\xff" * 65),
}


def extreme(entry: dict[str, Any], which: int) -> Any:
    """0: the smallest, 1: one, 2: the largest value of a type."""
    kind: str = entry["type"]
    if kind == "tuple":
        return tuple(extreme(part, which) for part in entry["components"])
    if kind.endswith("]"):
        length = kind[kind.rindex("[") + 1 : -1]
        inner = {**entry, "type": kind[: kind.rindex("[")]}
        return [extreme(inner, which)] * (int(length) if length else min(which, 1))
    return TEXTS[kind][which] if kind in TEXTS else extreme_number(kind, which)


def extreme_number(kind: str, which: int) -> Any:
    bits = 160 if kind == "address" else int(kind[4:]) if kind.startswith("uint") else 8 * int(kind[5:])
    number = (0, 1, 2**bits - 1)[which]
    if kind == "address":
        return f"0x{number:040x}"
    return number if kind.startswith("uint") else number.to_bytes(bits // 8, "big")


def calls(name: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for function in artifact(name)["abi"]:
        if function["type"] != "function" or function["stateMutability"] in ("view", "pure"):
            continue
        for base in range(3):
            usual = tuple(extreme(entry, base) for entry in function["inputs"])
            yield function["name"], usual
            for i, entry in enumerate(function["inputs"]):
                for which in range(3):
                    yield function["name"], (*usual[:i], extreme(entry, which), *usual[i + 1 :])


def wealth(network: Network, account: str) -> int:
    owed: int = sum(vault.owed(account) for vault in (network.escrow, network.stakes, network.book))
    staked: int = network.stakes.validator_of(account)[1] + sum(network.stakes.bond_of(account)[:3])
    credits_left: int = network.settlement.unspent(account)
    balance: int = network.token.balanceOf(account)
    return balance + owed + staked + credits_left


@pytest.mark.parametrize("contract", CONTRACTS)
def test_extreme_arguments_gain_nothing_and_break_nothing(network: Network, contract: str) -> None:
    order = place_order(network)
    order.started({0: 2 * USD, 1: USD})
    network.fund(ATTACKER)
    target = getattr(network, contract)
    before, lease = wealth(network, ATTACKER), order.lease
    for function, arguments in calls(target.name):
        if function == "faucet":
            continue
        try:
            target.send(function, arguments, who=ATTACKER)
        except Reverted:
            continue
        assert wealth(network, ATTACKER) <= before, f"{function}{arguments}"
        assert all(vault.solvent() for vault in network.vaults), f"{function}{arguments}"
    assert order.lease == lease
    network.orders.close(order.order_id, 1, who=RENTER.address)
