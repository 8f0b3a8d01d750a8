"""Replies to what never became an exchange: bytes that are no request, or one that is refused by its head alone."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import new_id
from sparewatt.core.rng import Rng
from sparewatt.edge.context import SERVER
from sparewatt.edge.cors import cors_headers
from sparewatt.edge.middleware import ErrorCounter
from sparewatt.edge.reply_head import DateHeader, reply_head_bytes
from sparewatt.edge.request_head import RequestHead
from sparewatt.edge.request_log import RequestLine, log_finished
from sparewatt.protocol.openai.chat import error_body, error_headers

_COUNTED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"})
"""Errors at endpoints that models answer are counted, also of requests that never became one."""


class Refusals:
    """Counted and logged as any other reply; the connection closes after it."""

    def __init__(self, errors: ErrorCounter | None, *, is_logged: bool, rng: Rng) -> None:
        self._errors = errors
        self._is_logged = is_logged
        self._rng = rng
        self._date = DateHeader()

    def reply(self, error: SparewattError, head: RequestHead | None) -> bytes:
        request_id = new_id("req", rng=self._rng)
        path = head.path if head is not None else "unknown"
        if path in _COUNTED and self._errors is not None:
            self._errors.count_error(error.code)
        if self._is_logged:
            method = head.method.decode("latin-1")[:20] if head is not None else "?"
            route = path if path in _COUNTED else "unknown"
            log_finished(RequestLine(request_id, f"{method} {route}", error.status, 0.0, error.code), None)
        return self._bytes(error, request_id, cors_headers(path, head.headers) if head is not None else {})

    def _bytes(self, error: SparewattError, request_id: str, more: Mapping[str, str]) -> bytes:
        body = msgspec.json.encode(error_body(error))
        headers = {
            "content-type": "application/json",
            "server": SERVER,
            "x-request-id": request_id,
            **error_headers(error),
            **more,
        }
        framing = f"content-length: {len(body)}\r\nconnection: close\r\n{self._date.line()}"
        return reply_head_bytes(error.status, headers, framing) + body
