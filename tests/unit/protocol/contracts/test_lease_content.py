from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.lease_content import (
    CONTENT_BYTES_MAX,
    ENV_VALUE_CHARS_MAX,
    LeaseContent,
    content_hash_of,
    read_content,
    write_content,
)
from sparewatt.protocol.signing import keccak256

CONTENT = LeaseContent(
    image="nginx:1", command=("sh", "-c", "x"), env={"B": "é", "A": "1"}, ports=(80,), secrets=("T",)
)


def test_a_document_is_canonical_and_read_again() -> None:
    text = write_content(CONTENT)
    assert text == (
        '{"command":["sh","-c","x"],"env":{"A":"1","B":"é"},"image":"nginx:1","ports":[80],'
        '"read_only":false,"restart":"always","secrets":["T"],"version":1}'
    )
    assert read_content(text) == CONTENT
    assert content_hash_of(text) == keccak256(text.encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"image": "a b"},
        {"image": "-v"},
        {"image": "a\n"},
        {"image": ""},
        {"ports": [0]},
        {"ports": [65_536]},
        {"ports": list(range(1, 40))},
        {"env": {"A=B": "1"}},
        {"env": {"A": "x\x00"}},
        {"env": {f"A{number}": "" for number in range(600)}},
        {"secrets": ["a b"]},
        {"command": ["x\x00"]},
        {"version": 2},
        {"volumes": []},
    ],
)
def test_a_strangers_document_is_read_within_its_ranges(changes: dict[str, Any]) -> None:
    document = json.loads(write_content(CONTENT)) | changes
    with pytest.raises(InvalidField):
        read_content(json.dumps(document))


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "\ud800", '{"image":"a"}' + " " * CONTENT_BYTES_MAX])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        read_content(text)


def test_a_document_is_bounded_in_bytes_not_characters() -> None:
    value = "é" * ENV_VALUE_CHARS_MAX
    assert len(write_content(LeaseContent(image="a", env={"A": value})).encode()) > 2 * ENV_VALUE_CHARS_MAX
    with pytest.raises(InvalidField, match="65,536 are allowed"):
        write_content(LeaseContent(image="a", env={"A": value, "B": value}))


def test_half_a_surrogate_pair_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidField, match="surrogate"):
        write_content(LeaseContent(image="a", env={"A": "\ud800"}))
