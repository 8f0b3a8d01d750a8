"""The reason of a revert comes from the contract's own bytes."""

from __future__ import annotations

import pytest
from eth_abi.abi import encode

from sparewatt.evm.revert_reasons import REASON_CHARS_MAX, read_reason, returned_bytes

ERROR, PANIC = bytes.fromhex("08c379a0"), bytes.fromhex("4e487b71")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (ERROR + encode(["string"], ["NOT_OWNER"]), "NOT_OWNER"),
        (ERROR + encode(["string"], ["x" * 500]), "x" * REASON_CHARS_MAX),
        (PANIC + encode(["uint256"], [0x11]), "number out of range"),
        (PANIC + encode(["uint256"], [0x99]), "panic 153"),
        (b"", "no reason given"),
        (bytes.fromhex("deadbeef"), "error 0xdeadbeef"),
        (ERROR + b"\xff" * 7, "error 0x08c379a0"),
        (ERROR + encode(["bytes"], [b"\xff\xfe"]), "error 0x08c379a0"),
    ],
)
def test_the_reason_is_read_from_what_the_contract_returned(data: bytes, reason: str) -> None:
    assert read_reason(data) == reason


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("0x0102", b"\1\2"),
        ({"data": "0x01"}, b"\1"),
        ({"result": "0x02"}, b"\2"),
        ("execution reverted", b""),
        (None, b""),
        ({"data": None}, b""),
        (7, b""),
    ],
)
def test_what_a_contract_returned_is_found_where_nodes_put_it(data: object, found: bytes) -> None:
    assert returned_bytes(data) == found
