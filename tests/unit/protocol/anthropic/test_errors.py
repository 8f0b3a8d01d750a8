from __future__ import annotations

import pytest

from sparewatt.core.errors import (
    BodyTooLarge,
    FirstTokenTimeout,
    InsufficientCredits,
    InternalError,
    InvalidField,
    JobFailed,
    NoCapacity,
    NoEligibleNode,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    QueueFull,
    RateLimited,
    ShuttingDown,
    SparewattError,
)
from sparewatt.inference.dispatch.failure_reasons import ErrorCode, request_error
from sparewatt.protocol.anthropic.errors import anthropic_error


@pytest.mark.parametrize(
    ("kind", "status", "name"),
    [
        (InvalidField, 400, "invalid_request_error"),
        (NotAuthenticated, 401, "authentication_error"),
        (InsufficientCredits, 402, "billing_error"),
        (NotAllowed, 403, "permission_error"),
        (NotFound, 404, "not_found_error"),
        (BodyTooLarge, 413, "request_too_large"),
        (RateLimited, 429, "rate_limit_error"),
        (QueueFull, 529, "overloaded_error"),
        (NoCapacity, 529, "overloaded_error"),
        (ShuttingDown, 529, "overloaded_error"),
        (NoEligibleNode, 503, "api_error"),
        (InternalError, 500, "api_error"),
        (JobFailed, 502, "api_error"),
        (FirstTokenTimeout, 504, "timeout_error"),
    ],
)
def test_each_error_has_anthropics_type_and_status(kind: type[SparewattError], status: int, name: str) -> None:
    shaped = anthropic_error(kind("It is so."), request_id="req_1")
    assert shaped.status == status
    assert shaped.body == {
        "type": "error",
        "error": {"type": name, "message": "It is so."},
        "request_id": "req_1",
    }


def test_the_field_at_fault_stands_before_the_text() -> None:
    shaped = anthropic_error(InvalidField("Too many.", param="tools.3.name"), request_id="")
    assert shaped.body["error"]["message"] == "tools.3.name: Too many."


def overflow(*, prompt_tokens: int, max_tokens: int = 10, limit: int = 8192) -> str:
    error = request_error(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "llama", context_tokens=limit, nodes=1)
    shaped = anthropic_error(error, request_id="", prompt_tokens=prompt_tokens, max_tokens=max_tokens)
    assert (shaped.status, shaped.body["error"]["type"]) == (400, "invalid_request_error")
    text: str = shaped.body["error"]["message"]
    return text


def test_a_prompt_that_is_too_long_is_told_in_the_words_that_clients_know() -> None:
    assert overflow(prompt_tokens=9000).startswith("prompt is too long: 9000 tokens > 8192 maximum")


def test_an_answer_that_would_not_fit_is_told_with_the_sum() -> None:
    text = overflow(prompt_tokens=8000, max_tokens=500)
    assert text.startswith("input length and `max_tokens` exceed context limit: 8000 + 500 > 8192")


@pytest.mark.parametrize("limit", [0, 8192])
def test_no_number_is_made_up_for_an_overflow_that_the_estimate_does_not_explain(limit: int) -> None:
    assert overflow(prompt_tokens=100, limit=limit).startswith("prompt is too long. ")
