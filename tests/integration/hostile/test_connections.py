"""What happens on one connection, in order: pipelines, half-closed clients, expectations, and clients that vanish."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from sparewatt.testing import expected_text, render_chat
from tests.integration.asking import ask
from tests.integration.hostile.raw import NotHttp, RawReply, Wire, address_of, wire_to
from tests.integration.hostile.target import Target
from tests.processes import wait_until

MODELS = b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %b\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"
LAST = b"GET /version HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n"
LONG: dict[str, Any] = {"stream": True, "ignore_eos": True, "max_tokens": 4000}
UPLOAD_BYTES = 19 << 20


def answer_to(prompt: str, tokens: int = 2) -> str:
    return expected_text(render_chat([{"role": "user", "content": prompt}]), max_tokens=tokens)


def last_outcome(target: Target) -> str:
    matches = ask(target.network, "GET", "/v1/matches", key=target.key.decode()).json()["data"]
    return str(next(match["outcome"] for match in matches if match["streamed"]))


@pytest.fixture
def wire(target: Target) -> Iterator[Wire]:
    with wire_to(target.network) as found:
        yield found


def statuses(replies: list[RawReply]) -> list[int]:
    return [reply.status for reply in replies]


@pytest.mark.parametrize("count", [2, 50])
def test_pipelined_requests_are_answered_in_order_and_once(target: Target, wire: Wire, count: int) -> None:
    wire.send(b"".join(target.chat(f"number {n}") for n in range(count)) + LAST)
    replies = wire.replies()
    assert statuses(replies) == [200] * (count + 1)
    assert [reply.text for reply in replies[:-1]] == [answer_to(f"number {n}") for n in range(count)]


def test_a_pipeline_over_all_kinds_of_routes_loses_nothing(target: Target, wire: Wire) -> None:
    kinds = [target.chat("one"), MODELS % target.key, target.chat("two"), HEALTH, HEALTH, target.chat("three")]
    wire.send(b"".join(kinds * 5) + LAST)
    replies = wire.replies()
    assert statuses(replies) == [200] * 31
    chats = [reply.text for at, reply in enumerate(replies[:-1]) if at % 6 in (0, 2, 5)]
    assert chats == [answer_to(prompt) for prompt in ("one", "two", "three")] * 5
    assert all(b'"object":"list"' in reply.body for reply in replies[1:-1:6])


def test_a_request_behind_a_stream_waits_for_its_end(target: Target, wire: Wire) -> None:
    wire.send(target.chat("stream", stream=True) + target.chat("whole") + LAST)
    stream, whole, last = wire.replies()
    assert stream.body.endswith(b"data: [DONE]\n\n")
    assert (whole.text, last.status) == (answer_to("whole"), 200)


def test_errors_in_a_pipeline_keep_their_place(target: Target, wire: Wire) -> None:
    wire.send(target.chat(n=0) + target.chat("fine") + target.chat(key=b"sk-sw-wrong") + target.chat("again") + LAST)
    assert statuses(wire.replies()) == [400, 200, 401, 200, 200]


def test_a_request_in_pieces_of_one_byte_is_a_request(target: Target, wire: Wire) -> None:
    for at in range(len(raw := target.chat("slowly"))):
        wire.send(raw[at : at + 1])
    reply = wire.reply()
    assert reply is not None
    assert reply.text == answer_to("slowly")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_says_no_more_has_left(target: Target, wire: Wire, *, stream: bool) -> None:
    """An end of file is how a client that is gone looks: what runs for it is stopped, so nobody pays for nothing."""
    wire.send(target.chat("half", stream=stream, max_tokens=4_000))
    wire.send_no_more()
    with suppress(NotHttp):  # a stream that had begun breaks off
        assert all(b"[DONE]" not in reply.body for reply in wire.replies())


def test_a_body_is_asked_for_only_if_it_will_be_read(target: Target, wire: Wire) -> None:
    body = target.chat_body("expected")
    wire.send(target.head(b"Content-Length: %d" % len(body), b"Expect: 100-continue"))
    interim = wire.reply()
    assert interim is not None
    assert (interim.status, interim.headers.get("content-length")) == (100, None)
    wire.send(body + LAST)
    assert statuses(wire.replies()) == [200, 200]


@pytest.mark.parametrize(("key", "length", "status"), [(b"sk-sw-wrong", 100, 401), (None, 1 << 30, 413)])
def test_what_will_not_be_read_is_refused_at_once(
    target: Target, wire: Wire, key: bytes | None, length: int, status: int
) -> None:
    wire.send(target.head(b"Content-Length: %d" % length, b"Expect: 100-continue", key=key))
    reply = wire.reply()
    assert reply is not None
    assert reply.status == status, "the client was told to go on, and then refused"


def test_a_refusal_reaches_a_client_that_is_still_sending(target: Target) -> None:
    """A socket that is closed with bytes unread is reset, and the reply is lost with it."""
    with wire_to(target.network) as wire:
        wire.send(target.head(b"Content-Length: %d" % UPLOAD_BYTES, key=b"sk-sw-wrong"))
        sent = send_until_answered(wire.socket, UPLOAD_BYTES)
        reply = wire.reply()
    assert reply is not None, f"the connection ended after {sent:,} bytes without a reply"
    assert reply.status == 401


def send_until_answered(sending: socket.socket, n_bytes: int) -> int:
    """Send like a client that looks for an answer now and then."""
    sent, piece = 0, bytes(1 << 16)
    while sent < n_bytes:
        readable, _, _ = select.select([sending], [], [], 0)
        if readable:
            break
        try:
            sent += sending.send(piece)
        except OSError:
            break
    return sent


def test_a_client_that_vanishes_within_its_body_starts_nothing(target: Target) -> None:
    before = target.smuggled()
    for cut in (1, 40, 120, len(target.hidden()) - 1):
        with wire_to(target.network) as wire:
            wire.send(target.hidden()[:cut])
            wire.reset()
    assert target.smuggled() == before


def test_a_client_that_vanishes_within_a_stream_ends_the_job(target: Target) -> None:
    with wire_to(target.network) as wire:
        wire.send(target.chat("gone", **LONG))
        assert wire.head() is not None
        wire.line()
        wire.reset()
    wait_until(lambda: last_outcome(target) == "cancelled", "the job goes on")


def test_what_is_piped_behind_a_stream_dies_with_its_client(target: Target) -> None:
    before = target.smuggled()
    with wire_to(target.network) as wire:
        wire.send(target.chat("gone", **LONG) + target.hidden() * 3)
        assert wire.head() is not None
        wire.line()
        wire.reset()
    wait_until(lambda: last_outcome(target) == "cancelled", "the job goes on")
    assert target.smuggled() == before


def test_connections_that_open_and_close_leave_nothing(target: Target) -> None:
    for _ in range(100):
        socket.create_connection(address_of(target.network)).close()
    assert ask(target.network, "GET", "/healthz").status == 200
