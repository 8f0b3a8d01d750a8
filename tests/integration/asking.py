"""Asking a network as a client would, with nothing but the standard library: what curl sees."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.integration.networks import Network

REPLY_S = 90.0


@dataclass(slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> dict[str, Any]:
        """The error object; fails unless it has just what OpenAI's clients rely on."""
        error: dict[str, Any] = self.json()["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        return error


@dataclass(slots=True)
class Answer:
    """A streamed answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    text: str = ""
    done: bool = False
    error: dict[str, Any] | None = None
    usage: dict[str, int] | None = None
    chunks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def attempts(self) -> int:
        """As far as known when the head went out: before a late first token it goes without."""
        return int(self.headers.get("x-sparewatt-attempts", "1"))


@contextmanager
def connection_to(network: Network, *, source: str | None = None) -> Iterator[http.client.HTTPConnection]:
    """`source`: the address of this machine that it comes from."""
    parts = urlsplit(network.root_url)
    secure = parts.scheme == "https"  # SSL_CERT_FILE names whom to trust
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    own = (source, 0) if source is not None else None
    connection = kind(parts.hostname or "", parts.port, timeout=REPLY_S, source_address=own)
    try:
        yield connection
    finally:
        connection.close()


def ask(
    network: Network, method: str, path: str, body: object = None, *, key: str | None = None, raw: bytes | None = None
) -> Reply:
    """One request and its whole reply. `key` is the network's own unless given; "" sends none."""
    key = network.api_key if key is None else key
    headers = {"authorization": f"Bearer {key}"} if key else {}
    data = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
    with connection_to(network) as connection:
        connection.request(method, path, body=data, headers=headers)
        reply = connection.getresponse()
        return Reply(reply.status, _lower(reply), reply.read())


def chat_body(network: Network, prompt: str, **more: object) -> dict[str, object]:
    return {"model": network.model, "messages": [{"role": "user", "content": prompt}], **more}


def stream_chat(network: Network, prompt: str, **more: object) -> Answer:
    """A streamed chat, as far as the network lets it come."""
    body = json.dumps(chat_body(network, prompt, stream=True, **more)).encode()
    with connection_to(network) as connection:
        connection.request(
            "POST", "/v1/chat/completions", body=body, headers={"authorization": f"Bearer {network.api_key}"}
        )
        reply = connection.getresponse()
        answer = Answer(reply.status, _lower(reply))
        if reply.status != 200:
            answer.error = json.loads(reply.read())["error"]
            return answer
        for line in reply:
            _read_line(answer, line.strip())
        return answer


def _read_line(answer: Answer, line: bytes) -> None:
    if not line.startswith(b"data: "):
        return
    assert not answer.done, "something came after [DONE]"
    if line == b"data: [DONE]":
        answer.done = True
        return
    chunk = json.loads(line[6:])
    answer.chunks.append(chunk)
    answer.error = chunk.get("error", answer.error)
    answer.usage = chunk.get("usage") or answer.usage
    for choice in chunk.get("choices", ()):
        answer.text += choice["delta"].get("content") or ""


def at_once(calls: Sequence[Callable[[], Answer | None]]) -> list[Answer | None]:
    """Run all calls at the same time; their results in order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(REPLY_S) for future in [pool.submit(call) for call in calls]]


def _lower(reply: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in reply.getheaders()}
