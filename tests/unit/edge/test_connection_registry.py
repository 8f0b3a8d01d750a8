"""Known heads: a head is known only if it is the same byte for byte, except for the length of the body."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from sparewatt.accounts.principal import principal_from_key
from sparewatt.api.inference.chat import PATH, read_chat
from sparewatt.edge.connection import Connection
from sparewatt.edge.connection_registry import KnownHead, KnownHeads, known_head
from sparewatt.edge.exchange import Endpoint, Exchange
from sparewatt.edge.http1 import RequestHead
from tests.property.front import QuickRegistry, Ticks
from tests.unit.gateway.small_gateway import bearer, key_row

START = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: "
REST = b"\r\nAuthorization: Bearer k\r\n\r\n"


def known(data: bytes = START + b"4" + REST + b"body", *, also: str | None = None) -> KnownHead | None:
    headers = {"host": "a"} | bearer() | ({also: "x"} if also else {})
    head = RequestHead(b"POST", PATH.encode(), "1.1", True, headers)
    return known_head(data, head, entered(head))


def entered(head: RequestHead) -> Exchange:
    """Whose sender was identified."""
    ticks = Ticks()
    registry = QuickRegistry(ticks)
    assert registry.inference is not None
    connection = Connection(registry, cast(asyncio.AbstractEventLoop, ticks))
    exchange = Exchange(registry.inference, connection, head, Endpoint(PATH, read_chat))
    assert exchange.enter()
    return exchange


def body_of(data: bytes) -> bytes | None:
    found = known()
    assert found is not None
    return found.body_of(data) if data.startswith(found.before) else None


def test_the_same_head_with_another_length() -> None:
    assert body_of(START + b"11" + REST + b"hello there") == b"hello there"
    assert body_of(START + b"0" + REST) == b""


@pytest.mark.parametrize(
    "data",
    [
        START + b"11" + REST + b"hello ther",
        START + b"4" + REST + b"body and more",
        START + b"" + REST,
        START + b"-4" + REST + b"body",
        START + b"+4" + REST + b"body",
        START + b" 4" + REST + b"body",
        START + b"4 " + REST + b"body",
        START + b"4, 4" + REST + b"body",
        START + b"0x4" + REST + b"body",
        START + b"4\n" + REST[2:] + b"body",
        START + "٤".encode() + REST + b"body",
        START + b"000000004" + REST + b"body",
        START + b"4" + REST.replace(b"k\r\n", b"other\r\n") + b"body",
        START + b"4\r\nTransfer-Encoding: chunked" + REST + b"body",
        START + b"4" + REST[:-2] + b"X: y\r\n\r\n" + b"body",
        START.replace(b"Host: a", b"Host: b") + b"4" + REST + b"body",
        START[:-2],
    ],
)
def test_a_head_that_differs_goes_through_the_parser(data: bytes) -> None:
    assert body_of(data) is None


@pytest.mark.parametrize("name", ["transfer-encoding", "expect", "upgrade", "idempotency-key", "cookie", "origin"])
def test_what_changes_how_it_is_read_or_answered_is_not_remembered(name: str) -> None:
    assert known(also=name) is None


def test_a_length_in_another_field_is_not_taken_for_the_length() -> None:
    found = known(START.replace(b"Host: a", b"Host: a\r\nX: Content-Length: 9") + b"4" + REST + b"body")
    assert found is not None
    assert found.body_of(found.before + b"2" + REST + b"ab") == b"ab"


def test_a_request_without_a_length_is_not_remembered() -> None:
    assert known(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n\r\n") is None


def test_connections_with_the_same_head_share_it() -> None:
    heads, first, second = KnownHeads(), known(), known()
    assert first is not None
    assert second is not None
    assert heads.shared(first) is first
    assert heads.shared(second) is first
    other = known(START + b"4" + REST.replace(b"Bearer k", b"Bearer l") + b"body")
    assert other is not None
    assert heads.shared(other) is other


def test_a_known_head_is_replaced_if_its_key_has_changed() -> None:
    heads, first, second = KnownHeads(), known(), known()
    assert first is not None
    assert second is not None
    heads.shared(first)
    row = key_row("app", "sk-sw-1", "inference")
    second.principal = principal_from_key(row)
    assert heads.shared(second) is second
