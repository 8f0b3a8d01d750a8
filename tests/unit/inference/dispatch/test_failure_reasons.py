"""Error replies become codes of a closed list, whatever strangers write into them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import (
    BodyTooLarge,
    SparewattError,
    UnprocessableContent,
    UnsupportedContent,
    UnsupportedMediaType,
    UnsupportedParameter,
)
from sparewatt.inference.dispatch.failure_reasons import (
    CLIENTS_FAULT,
    FAIL_SENTENCES,
    ContextTooLong,
    ErrorCode,
    RefusedByServer,
    ServerError,
    agreed_code,
    classify,
    classify_event,
    error_event_reason,
    failure_reason,
    request_error,
)
from sparewatt.protocol.link.frames import FailCode
from sparewatt.testing.engine.dialects import error_in
from sparewatt.testing.engine.settings import EngineContextTooLong, EngineDialect, EngineModelNotFound

DIALECTS: tuple[EngineDialect, ...] = ("sparewatt", "vllm", "sglang", "llama.cpp", "ollama")
RECORDED = Path(__file__).parents[3] / "contract" / "recorded"
CODES = {code.value for code in ErrorCode}


def error(message: str, **more: object) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("prompt", [100, 9000])
def test_every_servers_word_for_a_short_context_is_known(dialect: EngineDialect, prompt: int) -> None:
    too_long = EngineContextTooLong(prompt_tokens=prompt, n_ctx=8192, max_tokens=8192, param="messages")
    body = json.dumps(error_in(dialect, too_long)).encode()
    assert classify(400, body).code is ErrorCode.CONTEXT_LENGTH_EXCEEDED


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_servers_word_for_a_missing_model_is_known(dialect: EngineDialect) -> None:
    body = json.dumps(error_in(dialect, EngineModelNotFound("gpt-9", served=("a",)))).encode()
    assert classify(404, body).code is ErrorCode.MODEL_MISSING


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, error("logit_bias is not supported"), ErrorCode.UNSUPPORTED_PARAMETER),
        (400, error("x", code="unsupported_parameter"), ErrorCode.UNSUPPORTED_PARAMETER),
        (400, error("tools param requires --jinja flag"), ErrorCode.UNSUPPORTED_PARAMETER),
        (500, error("image input is not supported"), ErrorCode.UNSUPPORTED_CONTENT),
        (400, error("Invalid JSON schema: no type"), ErrorCode.INVALID_SCHEMA),
        (400, error("failed to parse grammar"), ErrorCode.INVALID_SCHEMA),
        (413, b"", ErrorCode.TOO_LARGE),
        (415, b"<html>", ErrorCode.UNSUPPORTED_MEDIA),
        (422, b'{"detail":[{"loc":["body","n"],"msg":"value is not an integer"}]}', ErrorCode.UNPROCESSABLE),
        (400, b'{"error":"no"}', ErrorCode.BAD_REQUEST),
        (400, b'{"object":"error","message":"no","code":400}', ErrorCode.BAD_REQUEST),
        (429, b"", ErrorCode.OVERLOADED),
        (503, error("Loading model"), ErrorCode.OVERLOADED),
        (500, error("CUDA out of memory. Tried to allocate 2 GiB"), ErrorCode.OUT_OF_MEMORY),
        (500, error("boom"), ErrorCode.SERVER_ERROR),
        (204, b"", ErrorCode.SERVER_ERROR),
        (400, b"[" * 5000, ErrorCode.BAD_REQUEST),
        (400, b"\xff\xfe", ErrorCode.BAD_REQUEST),
        (400, b"[1]", ErrorCode.BAD_REQUEST),
    ],
)
def test_errors_are_classified(status: int, body: bytes, code: ErrorCode) -> None:
    found = classify(status, body)
    assert (found.status, found.code) == (status, code)
    assert found.is_clients_fault is (status in CLIENTS_FAULT)


@given(st.integers(100, 599), st.text(), st.text() | st.integers(), st.text() | st.integers())
def test_nothing_of_a_strangers_text_is_told(status: int, message: str, code: object, kind: object) -> None:
    body = error(message, code=code, type=kind)
    reason = classify(status, body).reason
    assert reason.removeprefix(f"status {status}: ") in CODES
    event = error_event_reason(classify_event(body))
    assert event.removeprefix("the model server reported an error in its answer (").removesuffix(")") in CODES


def test_whether_two_servers_said_the_same_is_known_by_a_digest() -> None:
    one, same, other = (classify(500, error(text)) for text in ("a", "a", "b"))
    assert one.digest == same.digest != other.digest
    assert len(one.digest) == 16


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (ErrorCode.BAD_REQUEST, ErrorCode.BAD_REQUEST, ErrorCode.BAD_REQUEST),
        (ErrorCode.INVALID_SCHEMA, ErrorCode.INVALID_SCHEMA, ErrorCode.INVALID_SCHEMA),
        (ErrorCode.BAD_REQUEST, ErrorCode.INVALID_SCHEMA, ErrorCode.INVALID_SCHEMA),
        (ErrorCode.INVALID_SCHEMA, ErrorCode.BAD_REQUEST, ErrorCode.INVALID_SCHEMA),
        (ErrorCode.INVALID_SCHEMA, ErrorCode.UNSUPPORTED_CONTENT, ErrorCode.BAD_REQUEST),
    ],
)
def test_what_two_servers_agree_on(first: ErrorCode, second: ErrorCode, both: ErrorCode) -> None:
    assert agreed_code(ServerError(400, first), ServerError(400, second)) is both


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.CONTEXT_LENGTH_EXCEEDED, ContextTooLong),
        (ErrorCode.UNSUPPORTED_PARAMETER, UnsupportedParameter),
        (ErrorCode.UNSUPPORTED_CONTENT, UnsupportedContent),
        (ErrorCode.INVALID_SCHEMA, RefusedByServer),
        (ErrorCode.TOO_LARGE, BodyTooLarge),
        (ErrorCode.UNSUPPORTED_MEDIA, UnsupportedMediaType),
        (ErrorCode.UNPROCESSABLE, UnprocessableContent),
        (ErrorCode.BAD_REQUEST, RefusedByServer),
        (ErrorCode.SERVER_ERROR, RefusedByServer),
    ],
)
def test_a_client_hears_an_error_of_ours(code: ErrorCode, kind: type[SparewattError]) -> None:
    found = request_error(code, "m", context_tokens=4096, nodes=2)
    assert type(found) is kind
    assert found.status < 500
    assert ("4096 tokens" in found.message) is (kind is ContextTooLong)


def test_an_unknown_context_is_not_named() -> None:
    told = request_error(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "m", context_tokens=0, nodes=1).message
    assert told.startswith("This model's maximum context length is ")
    assert "0 tokens" not in told


OVERFLOWS = {
    f"{path.parent.name}-{number}": recorded
    for path in sorted(RECORDED.glob("*/overflow.json"))
    for number, recorded in enumerate(json.loads(path.read_text()))
}


@pytest.mark.parametrize("recorded", OVERFLOWS.values(), ids=OVERFLOWS)
def test_an_overflow_is_known_however_a_server_says_it(recorded: dict[str, Any]) -> None:
    body = json.dumps(recorded["body"]).encode()
    found = classify_event(body) if "event" in recorded else classify(recorded["status"], body)
    assert (found.code, found.is_clients_fault) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, True)
    assert found.context_tokens == recorded["context_tokens"]


def test_overflows_of_every_kind_of_server_are_recorded() -> None:
    assert {name.rpartition("-")[0] for name in OVERFLOWS} == {"llama_cpp", "lm_studio", "ollama", "sglang", "vllm"}


@pytest.mark.parametrize("read", [lambda body: classify(500, body), classify_event], ids=["status", "event"])
def test_a_cache_that_others_have_filled_is_no_fault_of_the_request(read: Callable[[bytes], ServerError]) -> None:
    found = read(error("Context size has been exceeded.", code=500, type="server_error"))
    assert (found.code, found.is_clients_fault) == (ErrorCode.OVERLOADED, False)


def test_a_stated_context_beyond_belief_is_cut() -> None:
    assert classify(400, error(f"This model's maximum context length is {10**9 - 1} tokens.")).context_tokens == 1 << 24
    assert classify(400, error(f"This model's maximum context length is {10**20} tokens.")).context_tokens == 0


def test_every_failure_of_a_node_has_a_sentence() -> None:
    assert set(FAIL_SENTENCES) == set(get_args(FailCode))
    assert failure_reason("link_lost") == "link_lost: the link to the node broke"
    assert failure_reason("refused", is_late=True) == "refused: its first token would come too late"
