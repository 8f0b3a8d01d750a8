"""Error replies without a handler: to bytes that are no HTTP request, or to a request refused by its head alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import new_id
from sparewatt.core.rng import Rng
from sparewatt.edge.context import SERVER
from sparewatt.edge.cors import cors_headers
from sparewatt.edge.http1 import DateHeader, RequestHead, reply_head_bytes
from sparewatt.edge.middleware import ErrorCounter, RequestLine, log_finished
from sparewatt.protocol.openai.chat import error_body, error_headers

_COUNTED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"})
"""Inference endpoints: their errors are counted even if no exchange was made."""


@dataclass(slots=True, kw_only=True)
class Refusals:
    """Counted and logged as any other reply. The connection closes after it."""

    errors: ErrorCounter | None
    is_logged: bool
    rng: Rng
    _date: DateHeader = field(default_factory=DateHeader)

    def reply(self, error: SparewattError, head: RequestHead | None) -> bytes:
        request_id = new_id("req", rng=self.rng)
        path = head.path if head is not None else "unknown"
        if path in _COUNTED and self.errors is not None:
            self.errors.count_error(error.code)
        if self.is_logged:
            method = head.method.decode("latin-1")[:20] if head is not None else "?"
            route = path if path in _COUNTED else "unknown"
            log_finished(RequestLine(request_id, f"{method} {route}", error.status, 0.0, error.code), None)
        headers = {
            "content-type": "application/json",
            "server": SERVER,
            "x-request-id": request_id,
            **error_headers(error),
            **(cors_headers(path, head.headers) if head is not None else {}),
        }
        body = msgspec.json.encode(error_body(error))
        framing = f"content-length: {len(body)}\r\nconnection: close\r\n{self._date.line()}"
        return reply_head_bytes(error.status, headers, framing) + body
