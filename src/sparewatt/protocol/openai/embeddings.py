"""Replies with embeddings, and the two encodings of a vector: numbers, or base64 of little-endian 32-bit floats."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sparewatt.protocol.openai.chat import UNREADABLE, Usage

Encoding = Literal["float", "base64"]
_FLOAT_BYTES = 4


class EmbeddingVector(msgspec.Struct, frozen=True):
    embedding: msgspec.Raw
    index: Annotated[int, Meta(ge=0)] = 0
    object: str = "embedding"


class EmbeddingVectors(msgspec.Struct, frozen=True):
    """A reply, as far as the gateway decodes it."""

    data: Annotated[list[EmbeddingVector], Meta(min_length=1)]
    usage: Usage | None = None


_decoder = msgspec.json.Decoder(EmbeddingVectors)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_embeddings(body: bytes) -> EmbeddingVectors | None:
    """None if it is no such reply."""
    try:
        return _decoder.decode(body)
    except UNREADABLE:
        return None


def with_encoding(body: bytes, encoding: Encoding) -> bytes:
    """The same reply with its vectors by index and in this encoding. Raises ValueError if they cannot be read."""
    vectors = sorted(_decoder.decode(body).data, key=lambda vector: vector.index)
    fields = _fields_decoder.decode(body)
    fields["data"] = msgspec.Raw(msgspec.json.encode([_encoded(vector, encoding) for vector in vectors]))
    return msgspec.json.encode(fields)


def _encoded(vector: EmbeddingVector, encoding: Encoding) -> EmbeddingVector:
    raw = bytes(vector.embedding)
    is_base64 = raw.startswith(b'"')
    if is_base64 is (encoding == "base64"):
        return vector
    numbers = _unpacked(raw) if is_base64 else msgspec.json.decode(raw, type=list[float])
    value: object = numbers if encoding == "float" else base64.b64encode(_packed(numbers)).decode()
    return EmbeddingVector(msgspec.Raw(msgspec.json.encode(value)), vector.index, vector.object)


def _packed(numbers: list[float]) -> bytes:
    try:
        return struct.pack(f"<{len(numbers)}f", *numbers)
    except OverflowError:
        raise ValueError("a number is too large for 32 bits") from None


def _unpacked(raw: bytes) -> list[float]:
    try:
        packed = base64.b64decode(msgspec.json.decode(raw, type=str), validate=True)
    except binascii.Error:
        raise ValueError("a vector is not base64") from None
    if len(packed) % _FLOAT_BYTES:
        raise ValueError("a vector is cut short")
    return list(struct.unpack(f"<{len(packed) // _FLOAT_BYTES}f", packed))
