"""A network for tests: a real HTTP server on loopback that gives canned replies and records its requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

KEY = "sk-sw-test-0123456789"


@dataclass(frozen=True)
class CannedReply:
    """One answer: a JSON body, or pieces that are sent one by one as a chunked stream."""

    body: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] | None = None
    ends: bool = True
    """Whether a chunked answer is ended as HTTP wants, or the connection just closes."""
    is_lost: bool = False
    """The connection closes without a byte."""


@dataclass(frozen=True)
class RecordedRequest:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class FakeNetwork:
    base_url: str
    answers: dict[str, CannedReply] = field(default_factory=dict)
    requests: list[RecordedRequest] = field(default_factory=list)

    def on(self, route: str, body: object = None, **rest: Any) -> None:
        """`route` is written like `GET /v1/models`."""
        self.answers[route] = CannedReply(body, **rest)

    def fail(self, route: str, status: int, code: str | None, message: str = "It failed.") -> None:
        self.on(route, {"error": {"message": message, "type": "t", "param": None, "code": code}}, status=status)

    def lose(self, route: str) -> None:
        """Take the request and close the connection."""
        self.answers[route] = CannedReply(is_lost=True)

    def streams(self, *pieces: bytes, ends: bool = True, headers: Mapping[str, str] | None = None) -> None:
        self.on("POST /v1/chat/completions", pieces=pieces, ends=ends, headers=headers or {})


def sse(*events: object) -> bytes:
    texts = (event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def piece(text: str, finish_reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    network: FakeNetwork

    def _answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.network.requests.append(
            RecordedRequest(self.command, self.path, dict(self.headers.items()), json.loads(raw) if raw else None)
        )
        unknown = {"error": {"message": "No such path.", "type": "t", "param": None, "code": "not_found"}}
        canned = self.network.answers.get(f"{self.command} {self.path}", CannedReply(unknown, status=404))
        self.close_connection = True
        if canned.is_lost:
            return
        if canned.pieces is None:
            self._send_whole(canned)
        else:
            self._send_pieces(canned, canned.pieces)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names http.server calls

    def _send_whole(self, canned: CannedReply) -> None:
        body = canned.body if isinstance(canned.body, bytes) else json.dumps(canned.body).encode()
        self._send_head(canned, {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _send_pieces(self, canned: CannedReply, pieces: Sequence[bytes]) -> None:
        self._send_head(canned, {"Transfer-Encoding": "chunked", "Content-Type": "text/event-stream"})
        for part in pieces:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
        if canned.ends:
            self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, canned: CannedReply, headers: Mapping[str, str]) -> None:
        self.send_response(canned.status)
        for name, value in {**headers, **canned.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Tests read results, not logs."""


@contextmanager
def running() -> Iterator[FakeNetwork]:
    class Handler(_Handler):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Handler.network = network = FakeNetwork(f"http://127.0.0.1:{server.server_port}/v1")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield network
        finally:
            server.shutdown()
            thread.join()
