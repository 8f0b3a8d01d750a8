"""Records of several validators, of which some are silent, and one may lie."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import InvalidField, NotFound, StartupError
from sparewatt.machine.stranger_http import PRIVATE_TOO, PUBLIC_ONLY, StrangerClient
from sparewatt.market.match.record import AuctionRecord, write_record
from sparewatt.protocol.api.validators import RecordedAttempts, attempts_path, record_path
from sparewatt.validator.record_fetch import (
    PEER_RECORD_BYTES_MAX,
    fetch_record,
    fetch_records,
    get_bounded,
    newest_attempt,
    peer_records,
)
from sparewatt.validator.server import BoundedServer, ServerReply, ServerRequest, error_reply
from tests.market_network.by_hand import USD, HandMatch

MATCH = HandMatch.of({0: USD})
RECORD = MATCH.record()
ID = "0x" + MATCH.cast.context.order_id.hex()


@dataclass
class Shelf:
    """What one validator answers."""

    attempts: list[int]
    record: AuctionRecord | None = RECORD
    body: bytes = b""

    async def handle(self, request: ServerRequest) -> ServerReply:
        if request.path == attempts_path(ID):
            return ServerReply(msgspec.json.encode(RecordedAttempts(order_id=ID, attempts=self.attempts)))
        if request.path in {record_path(ID, attempt) for attempt in self.attempts}:
            return ServerReply(self.body or msgspec.json.encode(write_record(self.record or RECORD)))
        return error_reply(404, "not_found", "nothing")


@asynccontextmanager
async def serving(*shelves: Shelf) -> AsyncIterator[list[str]]:
    servers = [BoundedServer(shelf.handle, clock=SystemClock(), large_body_sender=lambda _: None) for shelf in shelves]
    try:
        yield [f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}" for server in servers]
    finally:
        for server in servers:
            await server.close()


async def test_the_newest_attempt_is_one_that_more_than_a_third_have() -> None:
    async with serving(Shelf([0, 1]), Shelf([0, 1]), Shelf([0]), Shelf([4_294_967_295])) as urls:
        assert await newest_attempt(urls, ID) == 1
        assert await newest_attempt([*urls[:2], "http://127.0.0.1:1"], ID) == 1
        assert await newest_attempt(["http://127.0.0.1:1"], ID) == 0


async def test_the_silent_are_named_and_the_others_compared() -> None:
    async with serving(Shelf([0]), Shelf([]), Shelf([0], body=b"[]"), Shelf([0])) as urls:
        fetched = await fetch_records([*urls, "http://127.0.0.1:1"], ID, None)
    assert (fetched.attempt, list(fetched.records)) == (0, [urls[0], urls[3]])
    assert {each.source for each in fetched.silent} == {urls[1], urls[2], "http://127.0.0.1:1"}
    assert all(each.why for each in fetched.silent)


async def test_peers_that_give_nothing_of_use_are_left_out() -> None:
    too_large = b" " * PEER_RECORD_BYTES_MAX + b"{}"
    shelves = Shelf([0]), Shelf([]), Shelf([0], body=b"[]"), Shelf([0], body=b"\xff"), Shelf([0], body=too_large)
    transport = StrangerClient(PRIVATE_TOO)
    try:
        async with serving(*shelves) as urls:
            assert await peer_records(transport, [*urls, "http://127.0.0.1:1"], ID, 0) == [RECORD]
    finally:
        await transport.close()


async def test_a_peer_of_a_public_network_cannot_have_this_machine_asked() -> None:
    transport = StrangerClient(PUBLIC_ONLY)
    try:
        async with serving(Shelf([0])) as urls:
            assert await peer_records(transport, urls, ID, 0) == []
    finally:
        await transport.close()


async def test_the_context_of_one_liar_does_not_come_first() -> None:
    made_up = replace(RECORD, context=replace(RECORD.context, weights={"0x" + "66" * 20: 1}))
    async with serving(Shelf([0], made_up), Shelf([0]), Shelf([0])) as urls:
        fetched = await fetch_records(urls, ID, 0)
    assert list(fetched.records) == [urls[1], urls[2], urls[0]]


async def test_without_any_record_the_error_says_why() -> None:
    async with serving(Shelf([])) as urls:
        with pytest.raises(StartupError, match="No validator gave its record of attempt 3"):
            await fetch_records(urls, ID, 3)
    with pytest.raises(StartupError, match="give --from"):
        await fetch_records([], ID, 0)


async def test_a_file_is_read_as_well(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(msgspec.json.encode(write_record(RECORD)))
    fetched = await fetch_records([str(file)], ID, None)
    assert (fetched.attempt, list(fetched.records)) == (RECORD.context.attempt, [str(file)])
    with pytest.raises(StartupError, match="Cannot read"):
        await fetch_record(str(tmp_path / "none"), ID, 0)
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidField, match="no record"):
        await fetch_record(str(file), ID, 0)


async def test_an_answer_is_bounded_and_a_private_name_is_not_dialled() -> None:
    async with serving(Shelf([0])) as (url,):
        with pytest.raises(StartupError, match="too large"):
            await get_bounded(url + record_path(ID, 0), bytes_max=100)
        with pytest.raises(NotFound):
            await get_bounded(url + "/nowhere", bytes_max=100)
        named = url.replace("127.0.0.1", "localhost")
        with pytest.raises(StartupError, match="No validator answers"):
            await get_bounded(named + record_path(ID, 0), bytes_max=1 << 20, allows_private=False)
