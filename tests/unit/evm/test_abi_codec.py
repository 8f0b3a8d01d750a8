"""The ABI codec, held against eth_abi: random types and values, and random damage to what was encoded."""

from __future__ import annotations

import random
from typing import Any

import pytest
from eth_abi.abi import decode as their_decode
from eth_abi.abi import encode as their_encode
from eth_abi.exceptions import DecodingError
from hypothesis import given, settings
from hypothesis import strategies as st

from sparewatt.evm.abi_codec import NESTING_MAX, WORD, AbiError, abi_type, decode_values, encode_values

ADDRESS = "0x" + "ab" * 20


def number_word(number: int) -> bytes:
    return number.to_bytes(WORD, "big")


LEAVES: list[tuple[str, st.SearchStrategy[Any]]] = [
    *((f"uint{bits}", st.integers(0, (1 << bits) - 1)) for bits in (8, 16, 32, 64, 256)),
    *((f"int{bits}", st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)) for bits in (8, 128, 256)),
    *((f"bytes{size}", st.binary(min_size=size, max_size=size)) for size in (1, 4, 20, 32)),
    ("bool", st.booleans()),
    ("address", st.binary(min_size=20, max_size=20).map(lambda raw: f"0x{raw.hex()}")),
    ("bytes", st.binary(max_size=100)),
    ("string", st.text(max_size=40)),
]


def arrays_of(inner: tuple[str, st.SearchStrategy[Any]], length: int | None) -> tuple[str, st.SearchStrategy[Any]]:
    kind, values = inner
    lists = st.lists(values, max_size=4) if length is None else st.lists(values, min_size=length, max_size=length)
    return f"{kind}[{'' if length is None else length}]", lists.map(tuple)


def tuples_of(inners: list[tuple[str, st.SearchStrategy[Any]]]) -> tuple[str, st.SearchStrategy[Any]]:
    return f"({','.join(kind for kind, _ in inners)})", st.tuples(*(values for _, values in inners))


KINDS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(arrays_of, inner, st.one_of(st.none(), st.integers(1, 3))),
        st.builds(tuples_of, st.lists(inner, min_size=1, max_size=4)),
    ),
    max_leaves=8,
)


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[list[str], tuple[Any, ...]]:
    kinds = draw(st.lists(KINDS, max_size=5))
    return [kind for kind, _ in kinds], tuple(draw(values) for _, values in kinds)


@settings(max_examples=150, deadline=None)
@given(typed_values())
def test_every_value_is_encoded_as_eth_abi_does_and_read_back(case: tuple[list[str], tuple[Any, ...]]) -> None:
    types, values = case
    encoded = encode_values(types, values)
    assert encoded == their_encode(types, values)
    assert decode_values(types, encoded) == values


@settings(max_examples=150, deadline=None)
@given(typed_values(), st.integers(0, 1 << 32))
def test_whatever_is_decoded_is_the_one_encoding_of_its_value(
    case: tuple[list[str], tuple[Any, ...]], seed: int
) -> None:
    """Damaged bytes are refused, or are the canonical encoding of another value, which eth_abi reads as well."""
    types, values = case
    rng = random.Random(seed)  # noqa: S311 (a test that can be repeated)
    damaged = bytearray(encode_values(types, values))
    for _ in range(rng.randint(1, 3)):
        if damaged:
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 32, 255, rng.randrange(256)])
    data = bytes(damaged)[: len(damaged) - rng.choice([0, 0, 1, WORD])]
    try:
        decoded = decode_values(types, data)
    except AbiError:
        return
    assert encode_values(types, decoded) == data
    assert their_decode(types, data) == decoded


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("uint8", number_word(256)),
        ("int8", number_word(128)),
        ("bool", number_word(2)),
        ("address", b"\1" + bytes(31)),
        ("bytes4", bytes(31) + b"\1"),
        ("uint256", bytes(31)),
        ("uint256", bytes(33)),
        ("string", number_word(32) + number_word(1) + b"\xff" + bytes(31)),
        ("bytes", number_word(32) + number_word(1) + b"a" + bytes(30) + b"\1"),
        ("bytes", number_word(32) + number_word(33) + bytes(32)),
        ("bytes", number_word(32) + number_word(1 << 255)),
        ("uint256[]", number_word(32) + number_word(2) + number_word(1)),
        ("uint256[]", number_word(32) + number_word(1 << 250)),
        ("uint256[]", number_word(64) + bytes(WORD) + number_word(0)),
        ("bytes[]", number_word(32) + number_word(1) + number_word(0)),
    ],
)
def test_data_that_is_no_canonical_encoding_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(AbiError):
        decode_values([kind], data)


def test_offsets_that_all_lead_to_one_place_do_not_multiply_the_work() -> None:
    """eth_abi follows every offset: 40 bytes of data per level become 8 times as many values on each."""
    kind, inner = "uint256[]" + "[]" * 6, number_word(8) + b"".join(map(number_word, range(8)))
    for _ in range(6):
        inner = number_word(8) + number_word(8 * WORD) * 8 + inner
    with pytest.raises(AbiError, match="offset"):
        decode_values([kind], number_word(WORD) + inner)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("uint8", 256),
        ("uint8", -1),
        ("uint8", True),
        ("uint8", "1"),
        ("int8", 128),
        ("bool", 1),
        ("address", "0x12"),
        ("address", ADDRESS[2:]),
        ("bytes32", b"short"),
        ("bytes32", "0x" + "00" * 32),
        ("bytes", "text"),
        ("string", b"bytes"),
        ("uint8[2]", [1]),
        ("uint8[]", 1),
        ("(uint8,bool)", (1,)),
    ],
)
def test_a_value_of_another_type_is_refused(kind: str, value: object) -> None:
    with pytest.raises(AbiError):
        encode_values([kind], [value])


@pytest.mark.parametrize(
    "text",
    [
        "uint7",
        "uint264",
        "uint",
        "bytes0",
        "bytes33",
        "fixed128x18",
        "",
        "()",
        "uint8[0]",
        "(uint8",
        "uint8)",
        "uint8[-1]",
    ],
)
def test_a_type_that_we_do_not_use_is_refused_by_name(text: str) -> None:
    with pytest.raises(AbiError):
        abi_type(text)


def test_a_type_is_nested_only_so_deep_and_named_only_so_long() -> None:
    with pytest.raises(AbiError, match="deeply"):
        abi_type("uint8" + "[]" * NESTING_MAX)
    with pytest.raises(AbiError, match="long"):
        abi_type("(" + ",".join(["uint256"] * 1000) + ")")


def test_an_address_is_written_in_any_case_and_read_in_lower_case() -> None:
    data = encode_values(["address"], ["0x" + "AB" * 20])
    assert decode_values(["address"], data) == (ADDRESS,)


def test_eth_abi_refuses_what_reaches_beyond_the_data_too() -> None:
    """The comparison is with a decoder that is strict as well."""
    with pytest.raises(DecodingError):
        their_decode(["uint256[]"], number_word(32) + number_word(2) + number_word(1))
