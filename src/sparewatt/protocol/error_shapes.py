"""In which protocol's shape a client gets its errors: by the path it called, whatever went wrong on the way there."""

from __future__ import annotations

from collections.abc import Mapping

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.anthropic.errors import anthropic_error
from sparewatt.protocol.ollama.errors import ollama_error
from sparewatt.protocol.openai.chat import error_body
from sparewatt.protocol.shaped_error import ShapedError

MESSAGES_PATH = "/v1/messages"
OLLAMA_PREFIX = "/api/"
ANTHROPIC_VERSION = "anthropic-version"
"""The header that every client of Anthropic's sends, also to paths that OpenAI has as well."""


def shaped_error(
    error: SparewattError, *, path: str, headers: Mapping[str, str], request_id: str, **extra: object
) -> ShapedError:
    """`headers`: the request's. `extra`: more fields of OpenAI's error object."""
    if speaks_anthropic(path, headers):
        return anthropic_error(error, request_id=request_id)
    if path.startswith(OLLAMA_PREFIX):
        return ollama_error(error)
    return ShapedError(error.status, error_body(error, **extra))


def speaks_anthropic(path: str, headers: Mapping[str, str]) -> bool:
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/") or ANTHROPIC_VERSION in headers
