"""Slots and their queue, clients that disconnect, and the token rate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparewatt.core.clock import Timer, sleep_until
from sparewatt.testing import EngineSettings, InstantClock
from sparewatt.testing.engine.resources import UNPACED_STEPS, EngineSlots, TokenPacer
from sparewatt.testing.engine.settings import EngineQueueFull, EngineStats
from tests.unit.testing.client import MODEL, Client, NoTimer, StillClock, chat, engine_client, eventually

PATH = "/v1/chat/completions"
ONE_SLOT = EngineSettings(models=(MODEL,), slots=1, decode_tps=1)


async def _queued(engine: Client, count: int) -> bool:
    return (await engine.stats())["queued"] == count


async def _idle(engine: Client) -> bool:
    return (await engine.stats())["running"] == 0


async def test_a_client_that_disconnects_frees_its_slot_for_the_next_in_the_queue() -> None:
    async with engine_client(ONE_SLOT, clock=StillClock()) as engine:
        async with engine.open(PATH, messages=chat("first")) as first:
            assert await first.content.readline()
            assert (await engine.get("/slots"))[0]["is_processing"] is True
            second = asyncio.create_task(engine.session.post(engine.base_url + PATH, json=_streamed("second")))
            await eventually(lambda: _queued(engine, 1))
            first.close()
        response = await second
        assert (await response.content.readline()).startswith(b"data: ")
        stats = await engine.stats()
        assert (stats["running"], stats["queued"], stats["cancelled"]) == (1, 0, 1)
        response.close()
        await eventually(lambda: _idle(engine))
        assert (await engine.get("/slots"))[0]["is_processing"] is False


async def test_a_client_that_disconnects_stops_an_unstreamed_reply() -> None:
    async with engine_client(ONE_SLOT, clock=StillClock()) as engine:
        request = asyncio.create_task(engine.try_post(PATH, messages=chat("x")))
        await eventually(lambda: _running(engine))
        request.cancel()
        await eventually(lambda: _idle(engine))
        assert (await engine.stats())["cancelled"] == 1


async def test_a_client_that_disconnects_leaves_the_queue() -> None:
    async with engine_client(ONE_SLOT, clock=StillClock()) as engine, engine.open(PATH, messages=chat("first")):
        waiting = asyncio.create_task(engine.try_post(PATH, messages=chat("second")))
        await eventually(lambda: _queued(engine, 1))
        waiting.cancel()
        await eventually(lambda: _queued(engine, 0))
        assert (await engine.stats())["started"] == 1


async def test_stats_count_what_was_generated(engine: Client) -> None:
    replies = [await engine.post(PATH, messages=chat(f"{i}"), n=2) for i in range(3)]
    n_tokens = sum(reply["usage"]["completion_tokens"] for reply in replies)
    expected = {"running": 0, "queued": 0, "started": 3, "finished": 3, "cancelled": 0, "tokens": n_tokens}
    assert await engine.stats() == expected


async def test_more_requests_than_slots_all_get_their_answer() -> None:
    async with engine_client(EngineSettings(models=(MODEL,), slots=2, decode_tps=50, prefill_tps=100)) as engine:
        replies = await asyncio.gather(*(engine.stream(PATH, messages=chat(f"{i}")) for i in range(30)))
        assert all(chunks[-1]["choices"][0]["finish_reason"] == "stop" for chunks in replies)
        assert (await engine.stats())["finished"] == 30


async def test_slots_are_given_first_come_first_served() -> None:
    slots = EngineSlots(1, EngineStats())
    order: list[int] = []

    async def take(number: int) -> None:
        async with slots.occupy():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(take(number) for number in range(20)))
    assert order == list(range(20))


async def test_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparewatt.testing.engine.resources.QUEUE_MAX", 0)
    with pytest.raises(EngineQueueFull):
        async with EngineSlots(1, EngineStats()).occupy():
            pass


class SteppingClock:
    """A clock on which every timer fires `late_s` late."""

    def __init__(self, *, late_s: float) -> None:
        self.at_s = 0.0
        self.wakes = 0
        self._late_s = late_s

    def now_s(self) -> float:
        return self.at_s

    def unix_s(self) -> float:
        return self.at_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.at_s += delay_s + self._late_s
        self.wakes += 1
        asyncio.get_running_loop().call_soon(callback)
        return NoTimer()


async def _paced(clock: SteppingClock, *, tps: float, n_tokens: int) -> float:
    pace, done = TokenPacer(clock, tps=tps), 0
    while done < n_tokens:
        done = await pace.next_due(done)
    return clock.at_s


async def test_late_wake_ups_do_not_add_up() -> None:
    assert await _paced(SteppingClock(late_s=0.004), tps=100, n_tokens=1000) < 10.02


async def test_fast_tokens_share_wake_ups_and_keep_their_rate() -> None:
    clock = SteppingClock(late_s=0.0)
    taken_s = await _paced(clock, tps=10_000, n_tokens=10_000)
    assert 0.99 < taken_s < 1.01
    assert clock.wakes <= 510


async def test_slow_tokens_come_one_at_a_time() -> None:
    pace = TokenPacer(SteppingClock(late_s=0.0), tps=10)
    assert [await pace.next_due(done) for done in range(5)] == [1, 2, 3, 4, 5]


async def test_without_a_rate_tokens_come_in_batches() -> None:
    assert await TokenPacer(StillClock(), tps=0).next_due(0) == UNPACED_STEPS


async def test_the_instant_clock_jumps_to_the_awaited_time() -> None:
    clock = InstantClock()
    await sleep_until(clock, 5.0)
    assert clock.now_s() == 5.0


async def _running(engine: Client) -> bool:
    return (await engine.stats())["running"] == 1


def _streamed(content: str) -> dict[str, object]:
    return {"model": MODEL, "messages": chat(content), "stream": True}
