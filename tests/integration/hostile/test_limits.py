"""Bodies at and over the limits, and bodies that are hard to read: a clear error, quickly, and nothing else."""

from __future__ import annotations

import json
import time

import pytest

from sparewatt.core.limits import MIB, REQUEST_BODY_BYTES_MAX
from tests.integration.asking import Reply, ask
from tests.integration.hostile.raw import wire_to
from tests.integration.hostile.target import CHAT, Target

SECONDS_MAX = 10.0
"""For one of these bodies, on a crowded machine; most take milliseconds."""

MESSAGES = b'"messages": [{"role": "user", "content": "x"}]'
DEEP = 10_000


def send(target: Target, raw: bytes, path: str = CHAT.decode()) -> Reply:
    began_s = time.monotonic()
    reply = ask(target.network, "POST", path, raw=raw)
    assert time.monotonic() - began_s < SECONDS_MAX
    return reply


def test_a_body_at_the_limit_is_read_and_one_byte_more_is_not(target: Target) -> None:
    assert send(target, b" " * REQUEST_BODY_BYTES_MAX).error()["code"] == "invalid_json"
    with wire_to(target.network) as wire:
        wire.send(target.head(b"Content-Length: %d" % (REQUEST_BODY_BYTES_MAX + 1)))
        reply = wire.reply()
    assert reply is not None
    assert reply.status == 413


def test_a_body_in_chunks_is_cut_as_soon_as_it_is_over_the_limit(target: Target) -> None:
    piece = b"%x\r\n%b\r\n" % (MIB, bytes(MIB))
    sent = 0
    with wire_to(target.network) as wire:
        wire.send(target.head(b"Transfer-Encoding: chunked"))
        while sent <= REQUEST_BODY_BYTES_MAX and wire.send(piece):
            sent += MIB
        reply = wire.reply()
    assert reply is not None
    assert reply.status == 413


@pytest.mark.parametrize(
    "value",
    [
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b"[" * 1_000_000,
        b'[{"a":' * DEEP,
    ],
    ids=["arrays", "objects", "arrays-without-an-end", "mixed-without-an-end"],
)
@pytest.mark.parametrize("name", ["messages", "tools", "provider", "response_format", "unknown"])
def test_deep_json_is_refused(target: Target, name: str, value: bytes) -> None:
    body = b'{"model": "%b", %b, "%b": %b}' % (target.model.encode(), MESSAGES, name.encode(), value)
    assert send(target, body).error()["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/match", "/v1/login"])
def test_deep_json_is_refused_by_every_route(target: Target, path: str) -> None:
    deep = b"[" * DEEP + b"]" * DEEP
    fields = b", ".join(b'"%b": %b' % (name, deep) for name in (b"prompt", b"input", b"email", b"x"))
    reply = send(target, b'{"model": "%b", %b}' % (target.model.encode(), fields), path)
    assert reply.error()["type"] == "invalid_request_error"
    assert 400 <= reply.status < 500


@pytest.mark.parametrize(
    "fields",
    [
        b'"max_tokens": ' + b"9" * 100_000,
        b'"max_tokens": 1e400',
        b'"max_tokens": -0',
        b'"max_tokens": 99999999999999999999',
        b'"temperature": NaN',
        b'"temperature": 1e-400',
        b'"n": 2147483648',
        b'"seed": ' + b"1" * 5_000,
        b'"stop": "\\ud800"',
        b'"user": "\\u0000"',
        b'"user": "\xed\xa0\x80"',
        b'"user": "\xff\xfe"',
        b'"user": "\x00"',
        b'"stream": "true"',
        b'"model": "other", "model": "another"',
        b'"evil\\r\\nX-Injected: yes": 1',
        b'"model": "evil\\r\\nX-Injected: yes"',
        b'"model": "\\u0000\\ud83d"',
        b'"provider": {"order": ["evil\\r\\nX-Injected: yes"]}',
    ],
    ids=lambda fields: fields[:40].decode(errors="backslashreplace"),
)
def test_an_odd_value_is_refused_or_served_and_breaks_nothing(target: Target, fields: bytes) -> None:
    base = b'{"model": "%b", "max_tokens": 2, %b, ' % (target.model.encode(), MESSAGES)
    reply = send(target, base + fields + b"}")
    assert reply.status < 500, reply.body[:500]
    assert "x-injected" not in reply.headers
    json.loads(reply.body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "nobody", "messages": [%b]}' % b",".join([b'{"role": "user", "content": ""}'] * 100_000),
        b'{"model": "nobody", %b, %b}' % (MESSAGES, b", ".join(b'"k%d": 1' % n for n in range(100_000))),
        b'{"model": "nobody", "messages": [%b]}' % b",".join([b"1"] * 1_000_000),
        b'{"model": "nobody", "messages": [{"role": "user", "content": "%b"}]}' % (b"\\u0041" * 500_000),
    ],
    ids=["messages", "fields", "numbers", "escapes"],
)
def test_very_many_of_something_is_answered_in_time(target: Target, body: bytes) -> None:
    assert 400 <= send(target, body).status < 500
