"""Every kind of fault, as a client sees it, and how faults are counted and cleared."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from sparewatt.testing import EngineSettings, Fault, answer_tokens, render_chat
from sparewatt.testing.engine.settings import FAULTS_MAX, FaultQueue
from tests.unit.testing.client import MODEL, Client, chat, engine_client, eventually, joined

PATH = "/v1/chat/completions"
PROMPT = render_chat(chat("Hello"))


async def _lines(response: aiohttp.ClientResponse, count: int) -> list[Any]:
    """The next `count` events."""
    events: list[Any] = []
    while len(events) < count:
        line = await response.content.readline()
        assert line
        if line.strip():
            events.append(json.loads(line.removeprefix(b"data: ")))
    return events


async def test_a_status_fault_answers_with_that_status_and_an_error_object(engine: Client) -> None:
    await engine.fault(kind="status", status=429)
    status, reply = await engine.try_post(PATH, messages=chat("Hello"))
    assert status == 429
    assert set(reply["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_drop_before_the_head_closes_without_a_reply(engine: Client, *, is_streamed: bool) -> None:
    await engine.fault(kind="drop_before_head")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await engine.try_post(PATH, messages=chat("Hello"), stream=is_streamed)


@pytest.mark.parametrize("after_tokens", [0, 1, 5])
async def test_a_drop_after_tokens_sends_exactly_these_and_closes(engine: Client, after_tokens: int) -> None:
    await engine.fault(kind="drop_after_tokens", after_tokens=after_tokens)
    async with engine.open(PATH, messages=chat("Hello")) as response:
        chunks = await _lines(response, 1 + after_tokens)
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert joined(chunks) == "".join(answer_tokens(PROMPT, 0, after_tokens))
    assert (await engine.stats())["tokens"] == after_tokens
    assert (await engine.stats())["cancelled"] == 1


async def test_a_drop_beyond_the_answers_end_comes_before_its_finish(engine: Client) -> None:
    await engine.fault(kind="drop_after_tokens", after_tokens=10**6)
    async with engine.open(PATH, messages=chat("Hello"), max_tokens=3) as response:
        chunks = await _lines(response, 4)
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


async def test_a_drop_after_tokens_of_a_whole_reply_closes_without_it(engine: Client) -> None:
    await engine.fault(kind="drop_after_tokens", after_tokens=3)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await engine.try_post(PATH, messages=chat("Hello"))


async def test_a_stall_is_silent_after_its_tokens_until_the_client_leaves(engine: Client) -> None:
    await engine.fault(kind="stall_after_tokens", after_tokens=2)
    async with engine.open(PATH, messages=chat("Hello")) as response:
        assert joined(await _lines(response, 3)) == "".join(answer_tokens(PROMPT, 0, 2))
        await response.content.readline()
        more = asyncio.ensure_future(response.content.readline())
        assert (await engine.stats())["running"] == 1
        assert not more.done()
        more.cancel()
        response.close()
    await eventually(lambda: _idle(engine))


async def test_garbage_is_no_event_stream_and_no_json(engine: Client) -> None:
    await engine.fault(kind="garbage", count=2)
    for is_streamed in (True, False):
        async with engine.open(PATH, messages=chat("Hello"), stream=is_streamed) as response:
            assert response.status == 200
            assert response.content_type == "text/html"
            with pytest.raises(ValueError, match="codec"):
                json.loads(await response.read())


async def test_garbage_after_tokens_is_an_event_that_cannot_be_read(engine: Client) -> None:
    await engine.fault(kind="garbage", after_tokens=2)
    async with engine.open(PATH, messages=chat("Hello")) as response:
        *good, bad, end = (await response.read()).split(b"\n\n")
    assert len(good) == 3
    assert bad.startswith(b"data: {")
    assert end == b""
    with pytest.raises(ValueError, match="codec"):
        json.loads(bad.removeprefix(b"data: "))


async def test_an_error_event_ends_the_stream_without_done(engine: Client) -> None:
    await engine.fault(kind="error_event", after_tokens=2)
    async with engine.open(PATH, messages=chat("Hello")) as response:
        *chunks, error = await _lines(response, 4)
        rest = await response.read()
    assert joined(chunks) == "".join(answer_tokens(PROMPT, 0, 2))
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert rest.strip() == b""


async def test_an_error_event_of_a_whole_reply_is_a_500(engine: Client) -> None:
    await engine.fault(kind="error_event")
    status, reply = await engine.try_post(PATH, messages=chat("Hello"))
    assert (status, reply["error"]["type"]) == (500, "server_error")


@pytest.mark.parametrize("kind", ["drop_before_head", "drop_after_tokens"])
async def test_embeddings_are_dropped_too(engine: Client, kind: str) -> None:
    await engine.fault(kind=kind)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await engine.try_post("/v1/embeddings", input="x")


async def test_a_fault_strikes_as_often_as_it_says_and_then_no_more(engine: Client) -> None:
    await engine.fault(kind="status", count=2)
    statuses = [(await engine.try_post(PATH, messages=chat("Hello")))[0] for _ in range(4)]
    assert statuses == [503, 503, 200, 200]


async def test_a_fault_without_a_count_lasts_until_cleared(engine: Client) -> None:
    await engine.fault(kind="status", count=None)
    statuses = [(await engine.try_post(PATH, messages=chat("Hello")))[0] for _ in range(3)]
    async with engine.session.delete(f"{engine.base_url}/engine/faults") as response:
        assert await response.json() == {"faults": []}
    assert statuses == [503] * 3
    assert (await engine.try_post(PATH, messages=chat("Hello")))[0] == 200


async def test_faults_strike_in_the_order_they_were_set(engine: Client) -> None:
    await engine.fault(kind="status", status=500)
    await engine.fault(kind="status", status=429)
    statuses = [(await engine.try_post(PATH, messages=chat("Hello")))[0] for _ in range(3)]
    assert statuses == [500, 429, 200]


async def test_the_list_of_faults_is_bounded(engine: Client) -> None:
    for _ in range(FAULTS_MAX):
        await engine.fault(kind="status")
    status, reply = await engine.try_post("/engine/faults", kind="status")
    assert (status, reply["error"]["code"]) == (400, "too_many_faults")


@pytest.mark.parametrize("fault", [{"kind": "flood"}, {"kind": "status", "often": 3}, {"kind": "status", "count": 0}])
async def test_an_unknown_fault_is_refused(engine: Client, fault: dict[str, Any]) -> None:
    assert (await engine.try_post("/engine/faults", **fault))[0] == 400


def test_random_faults_repeat_with_their_seed_and_have_their_rate() -> None:
    def drawn(seed: int) -> list[Fault | None]:
        faults = FaultQueue(fail_rate=0.25, seed=seed)
        return [faults.take() for _ in range(2000)]

    n_failed = sum(fault is not None for fault in drawn(1))
    assert drawn(1) == drawn(1) != drawn(2)
    assert 400 < n_failed < 600


async def test_every_request_fails_at_a_rate_of_one() -> None:
    async with engine_client(EngineSettings(models=(MODEL,), fail_rate=1)) as engine:
        for _ in range(20):
            with pytest.raises((aiohttp.ClientError, AssertionError)):
                await engine.post(PATH, messages=chat("Hello"))


async def _idle(engine: Client) -> bool:
    return (await engine.stats())["running"] == 0
