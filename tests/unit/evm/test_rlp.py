"""RLP, held against the library that Ethereum's own clients in Python use."""

from __future__ import annotations

import random

import pytest
import rlp
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.evm.rlp import NESTING_MAX, RlpError, RlpItem, rlp_decode, rlp_encode, rlp_integer

ITEMS = st.recursive(
    st.one_of(
        st.binary(max_size=70), st.sampled_from([b"", b"\0", b"\x7f", b"\x80", bytes(55), bytes(56), bytes(300)])
    ),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=12,
)


@given(ITEMS)
def test_items_are_encoded_as_others_do_and_read_back(item: RlpItem) -> None:
    encoded = rlp_encode(item)
    assert encoded == rlp.encode(item)
    assert rlp_decode(encoded) == item


@given(ITEMS, st.integers(0, 1 << 32))
def test_whatever_is_decoded_is_the_one_encoding_of_its_item(item: RlpItem, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (a test that can be repeated)
    damaged = bytearray(rlp_encode(item))
    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    try:
        decoded = rlp_decode(bytes(damaged))
    except RlpError:
        return
    assert rlp_encode(decoded) == bytes(damaged)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "8100",
        "817f",
        "b800",
        "b80100",
        "b90038" + "00" * 56,
        "82aa",
        "c2aa",
        "c181",
        "0000",
        "f800",
        "bf" + "ff" * 8,
    ],
)
def test_what_is_not_canonical_is_refused(data: str) -> None:
    with pytest.raises(RlpError):
        rlp_decode(bytes.fromhex(data))


def test_lists_are_nested_only_so_deep() -> None:
    item: RlpItem = []
    for _ in range(NESTING_MAX):
        item = [item]
    with pytest.raises(RlpError, match="deeply"):
        rlp_decode(rlp_encode(item))


@pytest.mark.parametrize(("number", "encoded"), [(0, ""), (1, "01"), (0x400, "0400"), (1 << 64, "01" + "00" * 8)])
def test_a_number_has_no_leading_zeros(number: int, encoded: str) -> None:
    assert rlp_integer(number).hex() == encoded
