"""Whom a hostile request is aimed at, and well-formed requests to make it from.

Two accounts: what an honest one asks for may be served; a request that is hidden in another carries the smuggler's key,
so that one that was served shows in that account's matches and nowhere else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.integration.asking import ask
from tests.integration.networks import Network

CHAT = b"/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Target:
    network: Network
    key: bytes
    smuggler: bytes

    @property
    def model(self) -> str:
        return self.network.model

    def chat_body(self, prompt: str = "x", **more: object) -> bytes:
        messages = [{"role": "user", "content": prompt}]
        return json.dumps({"model": self.model, "messages": messages, "max_tokens": 2, **more}).encode()

    def head(self, *lines: bytes, start: bytes = b"POST " + CHAT + b" HTTP/1.1", key: bytes | None = None) -> bytes:
        """A head with a key and these lines; `start` is the request line."""
        named = b"Authorization: Bearer " + (self.key if key is None else key)
        return b"\r\n".join((start, b"Host: gateway", named, *lines)) + b"\r\n\r\n"

    def chat(self, prompt: str = "x", *lines: bytes, key: bytes | None = None, **more: object) -> bytes:
        """A whole request that is as it should be."""
        body = self.chat_body(prompt, **more)
        return self.head(b"Content-Length: %d" % len(body), *lines, key=key) + body

    def hidden(self) -> bytes:
        """A whole request that nobody may ever serve."""
        return self.chat("hidden", key=self.smuggler)

    def smuggled(self) -> int:
        """How many of those were."""
        reply = ask(self.network, "GET", "/v1/matches", key=self.smuggler.decode())
        assert reply.status == 200
        return len(reply.json()["data"])


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
