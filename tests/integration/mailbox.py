"""A mail server for a test: takes what is sent to it, speaks as much SMTP as that needs, on loopback."""

from __future__ import annotations

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread


@dataclass
class Mailbox:
    port: int
    mails: list[str] = field(default_factory=list)


class _Handler(socketserver.StreamRequestHandler):
    mailbox: Mailbox

    def handle(self) -> None:
        self._say("220 mailbox")
        for line in self.rfile:
            word = line.strip().upper()[:4]
            if word == b"DATA":
                self._say("354 go on")
                self.mailbox.mails.append(self._data())
            self._say("221 bye" if word == b"QUIT" else "250 ok")
            if word == b"QUIT":
                return

    def _data(self) -> str:
        lines = []
        for line in self.rfile:
            if line == b".\r\n":
                break
            lines.append(line.decode())
        return "".join(lines)

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    class Handler(_Handler):
        pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Handler.mailbox = box = Mailbox(server.server_address[1])
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield box
        finally:
            server.shutdown()
            thread.join()
