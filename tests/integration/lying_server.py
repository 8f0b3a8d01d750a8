"""A model server that is honest until it is told to lie: a proxy in front of the deterministic engine."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

MARKER = "marker-of-a-stranger"
FORWARD_S = 60.0
PIECE_BYTES = 65_536

Lie = Literal["", "refuses", "fails", "is silent", "breaks its stream", "talks nonsense"]
"""What it does with a request for an answer; nothing else is touched."""


class LyingServer:
    def __init__(self, engine_url: str) -> None:
        self.engine_url = engine_url
        self.lie: Lie = ""
        self.lies_told = 0
        self.is_over = threading.Event()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        is_answer = handler.command == "POST" and handler.path.endswith("completions")
        if not is_answer or not self.lie:
            self._forward(handler, body)
            return
        self.lies_told += 1
        error = json.dumps({"error": {"message": f"{MARKER} not here", "type": MARKER, "code": MARKER}}).encode()
        match self.lie:
            case "refuses" | "fails":
                _reply(handler, 400 if self.lie == "refuses" else 500, "application/json", error)
            case "is silent":
                self.is_over.wait(FORWARD_S)
            case "breaks its stream":
                _reply(handler, 200, "text/event-stream", b"data: " + error + b"\n\n")
            case _:
                _reply(handler, 200, "text/event-stream", b"data: " + MARKER.encode() + b"\n\n")

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        request = urllib.request.Request(  # noqa: S310 (our own loopback address)
            self.engine_url + handler.path,
            data=body or None,
            headers={"content-type": "application/json"},
            method=handler.command,
        )
        try:
            reply = urllib.request.urlopen(request, timeout=FORWARD_S)  # noqa: S310
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            handler.send_response(reply.status)
            handler.send_header("content-type", reply.headers.get("content-type", "application/json"))
            handler.end_headers()
            while piece := reply.read1(PIECE_BYTES):
                handler.wfile.write(piece)
                handler.wfile.flush()


def _reply(handler: BaseHTTPRequestHandler, status: int, content_type: str, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("content-type", content_type)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def lying_server(engine_url: str) -> Iterator[tuple[LyingServer, str]]:
    """The server, and its address."""
    lying = LyingServer(engine_url)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            lying.answer(self)

        def do_POST(self) -> None:
            lying.answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the base class)
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield lying, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        lying.is_over.set()
        server.shutdown()
        thread.join(5)
        server.server_close()
