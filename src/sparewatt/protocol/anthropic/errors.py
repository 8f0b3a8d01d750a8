"""Anthropic's error object, its error types and its statuses."""

from __future__ import annotations

import re

from sparewatt.core.errors import JobShed, NoCapacity, QueueFull, ShuttingDown, SparewattError
from sparewatt.protocol.shaped_error import ShapedError

OVERLOADED = 529
_OVERLOAD = (NoCapacity, QueueFull, JobShed, ShuttingDown)
"""Others take the room, and trying again later helps. What the client itself sends too much of stays a 429."""
_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
_TOO_LONG = "context_length_exceeded"
_TOKENS = re.compile(r"(\d+) tokens")


def anthropic_error(
    error: SparewattError, *, request_id: str, prompt_tokens: int = 0, max_tokens: int = 0
) -> ShapedError:
    """`prompt_tokens`: an estimate. `max_tokens`: what the request wants to be written. Both for an overflow's text."""
    status = OVERLOADED if isinstance(error, _OVERLOAD) else error.status
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    if error.code == _TOO_LONG:
        message = f"{_overflow(error, prompt_tokens, max_tokens)}. {error.message}"
    else:
        message = error.message if error.param is None else f"{error.param}: {error.message}"
    return ShapedError(status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id})


def _overflow(error: SparewattError, prompt_tokens: int, max_tokens: int) -> str:
    """Anthropic's clients know an overflow by how its text begins, and read the numbers. None is made up: where the
    estimate does not explain the overflow, there are none."""
    found = _TOKENS.search(error.message)
    limit = int(found[1]) if found is not None else 0
    if limit and prompt_tokens > limit:
        return f"prompt is too long: {prompt_tokens} tokens > {limit} maximum"
    if limit and prompt_tokens + max_tokens > limit:
        return f"input length and `max_tokens` exceed context limit: {prompt_tokens} + {max_tokens} > {limit}"
    return "prompt is too long"
