"""Embeddings in both encodings."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.protocol.openai.embeddings import read_embeddings, with_encoding


def reply(*vectors: object) -> bytes:
    data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return json.dumps({"object": "list", "data": data, "model": "m", "extra": [1]}).encode()


@given(st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)), min_size=1, max_size=3))
def test_both_encodings_of_a_vector_convert_into_each_other(vectors: list[list[float]]) -> None:
    coded = with_encoding(reply(*vectors), "base64")
    found = [item["embedding"] for item in json.loads(coded)["data"]]
    assert found == [base64.b64encode(struct.pack(f"<{len(each)}f", *each)).decode() for each in vectors]
    back = json.loads(with_encoding(coded, "float"))
    assert [item["embedding"] for item in back["data"]] == vectors
    assert (back["model"], back["extra"]) == ("m", [1])


@pytest.mark.parametrize(
    ("vector", "encoding"),
    [("no base64!", "float"), ("AAA=", "float"), ([1e300], "base64"), ({"a": 1}, "base64"), (["x"], "base64")],
)
def test_an_unreadable_vector_is_a_value_error(vector: object, encoding: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (whatever it says)
        with_encoding(reply(vector), "float" if encoding == "float" else "base64")


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"data":[]}', b'{"data":[{}]}', b'{"data":[{"embedding":1,"index":-1}]}']
)
def test_a_reply_without_vectors_is_none(body: bytes) -> None:
    assert read_embeddings(body) is None
