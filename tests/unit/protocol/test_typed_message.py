"""Typed messages against eth_account, which shares no code with ours."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_type_hints

import pytest

from sparewatt.core.rng import seeded
from sparewatt.protocol.contracts import match, meta_transactions, payouts
from sparewatt.protocol.signing import SigningKey, keccak256, recover_address
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest, struct_hash
from tests.unit.protocol.oracle import encode_typed_data

CONTRACT = "0x" + "ab" * 20
DOMAIN = contract_domain(chain_id=31337, contract=CONTRACT)
MESSAGES: list[type[TypedMessage]] = [
    kind
    for module in (match, payouts, meta_transactions)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, TypedMessage) and kind is not TypedMessage
]
KEY = SigningKey.generate(rng=seeded(1))


def types_of(kind: type[TypedMessage]) -> dict[str, str]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in dataclasses.fields(kind)}


def value_of(solidity: str, which: str) -> Any:
    if solidity == "Observation":
        return message_of(match.Observation, which)
    if solidity.endswith("[]"):
        count = {"min": 0, "max": 8, "typical": 2}[which]
        return tuple(value_of(solidity[:-2], which) for _ in range(count))
    if solidity == "address":
        return "0x" + {"min": "00", "max": "ff", "typical": "5a"}[which] * 20
    if solidity == "bytes32":
        return {"min": b"\0", "max": b"\xff", "typical": b"\x5a"}[which] * 32
    return {"min": 0, "max": 2 ** int(solidity[4:]) - 1, "typical": 90}[which]


def message_of(kind: type[TypedMessage], which: str) -> TypedMessage:
    return kind(**{name: value_of(solidity, which) for name, solidity in types_of(kind).items()})


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def members_as_dicts(kind: type[TypedMessage]) -> list[dict[str, str]]:
    return [{"name": camel(name), "type": solidity} for name, solidity in types_of(kind).items()]


def as_dict(message: TypedMessage) -> dict[str, Any]:
    return {camel(name): plain(getattr(message, name)) for name in types_of(type(message))}


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return as_dict(value) if isinstance(value, TypedMessage) else value


@pytest.mark.parametrize("which", ["min", "max", "typical"])
@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_messages_digest_is_the_one_ethereum_makes(kind: type[TypedMessage], which: str) -> None:
    message = message_of(kind, which)
    nested: list[type[TypedMessage]] = [match.Observation] if kind is match.Observations else []
    signable = encode_typed_data(
        domain_data={"name": "Sparewatt", "version": "1", "chainId": 31337, "verifyingContract": CONTRACT},
        message_types={each.struct_name or each.__name__: members_as_dicts(each) for each in (kind, *nested)},
        message_data=as_dict(message),
    )
    oracle = keccak256(b"\x19" + signable.version + signable.header + signable.body)
    assert message_digest(DOMAIN, message) == oracle


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_value_one_too_large_is_not_signed(kind: type[TypedMessage]) -> None:
    largest = message_of(kind, "max")
    for name, solidity in types_of(kind).items():
        if solidity.startswith("uint"):
            change: dict[str, Any] = {name: getattr(largest, name) + 1}
            with pytest.raises(ValueError, match="does not fit"):
                struct_hash(dataclasses.replace(largest, **change))


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_one_changed_bit_is_another_message(kind: type[TypedMessage]) -> None:
    message = message_of(kind, "typical")
    signature = KEY.sign(message_digest(DOMAIN, message))
    for name, solidity in types_of(kind).items():
        for bent in flipped(solidity, getattr(message, name)):
            change: dict[str, Any] = {name: bent}
            digest = message_digest(DOMAIN, dataclasses.replace(message, **change))
            assert recover_address(digest, signature) != KEY.address


def flipped(solidity: str, value: Any) -> list[Any]:
    """A few one-bit neighbours of a value: the first, the last and one between."""
    if solidity == "Observation":
        return [dataclasses.replace(value, zone=bent) for bent in flipped("uint8", value.zone)]
    if solidity.endswith("[]"):
        return [(bent, *value[1:]) for bent in flipped(solidity[:-2], value[0])]
    if solidity == "address":
        return [f"0x{int(value, 16) ^ (1 << bit):040x}" for bit in (0, 80, 159)]
    if solidity == "bytes32":
        number = int.from_bytes(value, "big")
        return [(number ^ (1 << bit)).to_bytes(32, "big") for bit in (0, 100, 255)]
    bits = int(solidity[4:])
    return [value ^ (1 << bit) for bit in (0, bits // 2, bits - 1)]


@pytest.mark.parametrize(
    "other",
    [contract_domain(chain_id=1, contract=CONTRACT), contract_domain(chain_id=31337, contract="0x" + "ac" * 20)],
)
def test_another_chain_or_contract_is_another_message(other: Any) -> None:
    vote = match.Vote(b"\1" * 32, 0, 0, b"\2" * 32)
    assert message_digest(other, vote) != message_digest(DOMAIN, vote)


def test_a_call_takes_nested_messages_as_tuples() -> None:
    row = match.Observation(CONTRACT, 1, 2, 3)
    assert match.Observations(7, 8, (row,)).values() == (7, 8, ((CONTRACT, 1, 2, 3),))
    assert match.Observations(7, 8, ()).values() == (7, 8, ())
