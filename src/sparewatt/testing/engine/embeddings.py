"""Embeddings: a unit vector that is a pure function of the text, as floats or as base64 of little-endian f32."""

from __future__ import annotations

import base64
import math
import struct
from hashlib import shake_256

from msgspec import Struct

from sparewatt.testing.engine import text
from sparewatt.testing.engine.answer_plan import room_after
from sparewatt.testing.engine.completions import texts_of
from sparewatt.testing.engine.replies import encode
from sparewatt.testing.engine.requests import EngineEmbeddingRequest
from sparewatt.testing.engine.settings import EngineSettings


class Embedding(Struct, frozen=True):
    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingUsage(Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class EngineEmbeddingList(Struct, frozen=True):
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    object: str = "list"


def vector_bytes(given: str, n_dimensions: int) -> bytes:
    """The vector as little-endian f32. Its direction comes from the text's hash; its length is 1."""
    noise = shake_256(given.encode()).digest(2 * n_dimensions)
    raw = [value - 32767.5 for value in struct.unpack(f"<{n_dimensions}H", noise)]
    norm = math.sqrt(math.fsum(value * value for value in raw))
    return struct.pack(f"<{n_dimensions}f", *(value / norm for value in raw))


def vector(given: str, n_dimensions: int) -> list[float]:
    return list(struct.unpack(f"<{n_dimensions}f", vector_bytes(given, n_dimensions)))


def plan_embeddings(request: EngineEmbeddingRequest, *, settings: EngineSettings) -> tuple[list[str], int]:
    """The texts to embed and their tokens in all."""
    texts = texts_of(request.input, param="input")
    counts = [text.count_tokens(each) for each in texts]
    for count in counts:
        room_after(count, settings=settings, param="input")
    return texts, sum(counts)


def embeddings_body(request: EngineEmbeddingRequest, texts: list[str], *, n_tokens: int, n_embd: int) -> bytes:
    n_dimensions = request.dimensions or n_embd
    data = [Embedding(i, _coded(each, n_dimensions, request.encoding_format)) for i, each in enumerate(texts)]
    return encode(EngineEmbeddingList(data, request.model, EmbeddingUsage(n_tokens, n_tokens)))


def _coded(given: str, n_dimensions: int, encoding_format: str) -> list[float] | str:
    if encoding_format == "base64":
        return base64.b64encode(vector_bytes(given, n_dimensions)).decode()
    return vector(given, n_dimensions)
