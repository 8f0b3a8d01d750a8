"""Messages as JSON: one reading each, and none for anything else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.match import Observations, OrderTerms, Specification
from sparewatt.protocol.contracts.message_json import read_message, write_message
from sparewatt.protocol.typed_message import TypedMessage, struct_hash
from tests.unit.protocol.contracts.test_message_ranges import ROWS, SPEC, TERMS, TYPICAL
from tests.vectors.make import POLICY


@pytest.mark.parametrize("message", TYPICAL, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: TypedMessage) -> None:
    text = msgspec.json.encode(write_message(message))
    again = read_message(type(message), msgspec.json.decode(text))
    assert struct_hash(again) == struct_hash(message)
    assert again == message


def test_members_have_the_names_of_the_struct_and_plain_values() -> None:
    assert write_message(SPEC) == {
        "contentHash": "0x" + "01" * 32,
        "gpus": 1,
        "cpuMilli": 2_000,
        "memoryMib": 4_096,
        "diskMib": 10_240,
        "egress": 1,
        "secrets": 0,
    }
    assert list(write_message(TERMS))[-1] == "reclaimS"
    assert write_message(ROWS)["rows"][0]["uptimePpm"] == 1


def test_a_number_of_256_bits_survives() -> None:
    document = {**write_message(POLICY), "countries": 2**256 - 1}
    assert read_message(OrderTerms, msgspec.json.decode(msgspec.json.encode(document))).countries == 2**256 - 1


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": "1"},
        {"gpus": 1.0},
        {"gpus": True},
        {"gpus": None},
        {"gpus": -1},
        {"gpus": 2**16},
        {"egress": 2},
        {"contentHash": "01" * 32},
        {"contentHash": "0x" + "AB" * 32},
        {"contentHash": "0x" + "01" * 31},
        {"contentHash": 5},
        {"price": 1},
        {"content_hash": "0x" + "01" * 32},
    ],
)
def test_another_type_or_member_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        read_message(Specification, {**write_message(SPEC), **changes})


def test_a_missing_member_is_named() -> None:
    document = write_message(SPEC)
    del document["secrets"]
    with pytest.raises(InvalidField) as caught:
        read_message(Specification, document)
    assert caught.value.param == "secrets"


@pytest.mark.parametrize("document", [None, [], "x", 5, [write_message(SPEC)]])
def test_what_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(InvalidField):
        read_message(Specification, document)


@pytest.mark.parametrize("rows", [{}, [1], [[]], [{"provider": 1}], "x", None])
def test_rows_that_are_no_messages_are_refused(rows: object) -> None:
    with pytest.raises(InvalidField):
        read_message(Observations, {"epoch": 1, "height": 2, "rows": rows})


def test_a_list_with_a_wrong_entry_is_refused() -> None:
    with pytest.raises(InvalidField) as caught:
        read_message(OrderTerms, {**write_message(POLICY), "only": ["0x1"]})
    assert caught.value.param == "only"
