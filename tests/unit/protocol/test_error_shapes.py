from __future__ import annotations

import pytest

from sparewatt.core.errors import InvalidField, NoCapacity
from sparewatt.protocol.error_shapes import shaped_error

VERSION = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/unknown"])
def test_paths_of_anthropic_get_its_errors(path: str) -> None:
    shaped = shaped_error(NoCapacity("Full."), path=path, headers={}, request_id="req_1")
    assert (shaped.status, shaped.body["error"]["type"], shaped.body["request_id"]) == (
        529,
        "overloaded_error",
        "req_1",
    )


def test_clients_of_anthropic_get_its_errors_everywhere() -> None:
    assert shaped_error(NoCapacity("Full."), path="/v1/models", headers=VERSION, request_id="").status == 529


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/messagesque", "/apis", "unknown"])
def test_other_paths_get_openais(path: str) -> None:
    shaped = shaped_error(InvalidField("No.", param="x"), path=path, headers={}, request_id="")
    shape = {"message": "No.", "type": "invalid_request_error", "param": "x", "code": "invalid_value"}
    assert shaped == (400, {"error": shape})


def test_paths_of_ollama_get_one_text() -> None:
    shaped = shaped_error(InvalidField("No.", param="x"), path="/api/chat", headers={}, request_id="")
    assert shaped == (400, {"error": "x: No."})
