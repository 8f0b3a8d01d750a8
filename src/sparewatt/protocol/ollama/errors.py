"""Ollama's error object: one text, also as a line of a stream."""

from __future__ import annotations

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.shaped_error import ShapedError


def ollama_error(error: SparewattError) -> ShapedError:
    """With the field at fault before the text: there is no other place for it."""
    text = error.message if error.param is None else f"{error.param}: {error.message}"
    return ShapedError(error.status, {"error": text})
