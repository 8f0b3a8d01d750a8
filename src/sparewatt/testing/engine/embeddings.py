"""Embeddings: a unit vector that is a pure function of the text, as floats or as base64 of little-endian f32."""

from __future__ import annotations

import base64
import math
import struct
from hashlib import shake_256

from sparewatt.testing.engine import text
from sparewatt.testing.engine.answer_plan import room_after, texts_of
from sparewatt.testing.engine.replies import Json
from sparewatt.testing.engine.requests import EngineEmbeddingRequest
from sparewatt.testing.engine.settings import EngineSettings


def vector_bytes(given: str, n_dimensions: int) -> bytes:
    """As little-endian f32. The direction comes from the text's hash; the length is 1."""
    noise = shake_256(given.encode()).digest(2 * n_dimensions)
    raw = [value - 32767.5 for value in struct.unpack(f"<{n_dimensions}H", noise)]
    norm = math.sqrt(math.fsum(value * value for value in raw))
    return struct.pack(f"<{n_dimensions}f", *(value / norm for value in raw))


def vector(given: str, n_dimensions: int) -> list[float]:
    return list(struct.unpack(f"<{n_dimensions}f", vector_bytes(given, n_dimensions)))


def plan_embeddings(request: EngineEmbeddingRequest, *, settings: EngineSettings) -> tuple[list[str], int]:
    """The texts to embed, and their tokens in total."""
    texts = texts_of(request.input, param="input")
    counts = [text.count_tokens(given) for given in texts]
    for count in counts:
        room_after(count, settings=settings, param="input")
    return texts, sum(counts)


def embeddings_body(request: EngineEmbeddingRequest, texts: list[str], *, n_tokens: int, n_embd: int) -> Json:
    vectors = [_encoded(given, request.dimensions or n_embd, request.encoding_format) for given in texts]
    data = [{"index": i, "embedding": one, "object": "embedding"} for i, one in enumerate(vectors)]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"data": data, "model": request.model, "usage": usage, "object": "list"}


def _encoded(given: str, n_dimensions: int, encoding_format: str) -> list[float] | str:
    if encoding_format == "base64":
        return base64.b64encode(vector_bytes(given, n_dimensions)).decode()
    return vector(given, n_dimensions)
