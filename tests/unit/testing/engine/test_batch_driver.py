"""The scheduler on a clock: streams are woken when they have tokens, and a stream that is left frees its place."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from sparewatt.testing import EngineSettings, InstantClock, ManualClock
from sparewatt.testing.engine.batch_driver import BatchDriver, batch_limits
from sparewatt.testing.engine.resources import ModelLoader
from sparewatt.testing.engine.settings import EngineStats

SETTINGS = EngineSettings(engine_kind="batching", max_num_seqs=2, step_s=0.01, prefill_token_s=0.001)


def make_driver(clock: ManualClock | InstantClock, **changes: object) -> tuple[BatchDriver, EngineStats]:
    settings, stats = replace(SETTINGS, **changes), EngineStats()  # type: ignore[arg-type]  # fields of the settings
    return BatchDriver(clock, settings=settings, stats=stats, loader=ModelLoader(clock, settings)), stats


async def ticks() -> None:
    """Let everything run that is ready."""
    for _ in range(10):
        await asyncio.sleep(0)


async def write(driver: BatchDriver, tokens: int, *, prompt: int = 10) -> list[int]:
    """How many tokens there were at each wake-up."""
    seen = [0]
    async with driver.generate(prompt_tokens=prompt, new_tokens=tokens) as stream:
        while seen[-1] < tokens:
            seen.append(await stream.next_due(seen[-1]))
    return seen[1:]


async def test_every_token_comes_when_it_is_due() -> None:
    clock = ManualClock(now_s=0.0)
    driver, _ = make_driver(clock)
    writing = asyncio.create_task(write(driver, 3))
    await ticks()
    clock.advance(0.0099)
    await ticks()
    assert driver.load().totals.generation_tokens == 0
    for written in (1, 2, 3):
        clock.advance(0.0002 if written == 1 else 0.01)
        await ticks()
        assert driver.load().totals.generation_tokens == written

    assert await writing == [1, 2, 3]
    assert clock.pending == 0


async def test_short_iterations_share_a_wake_up() -> None:
    clock = ManualClock(now_s=0.0)
    driver, _ = make_driver(clock, step_s=0.0005)
    writing = asyncio.create_task(write(driver, 40))
    for _ in range(100):
        await ticks()
        clock.advance(0.001)
    seen = await writing

    assert seen[-1] == 40
    assert len(seen) < 15


async def test_all_tokens_come_on_a_clock_without_waits() -> None:
    driver, stats = make_driver(InstantClock())
    streams = await asyncio.gather(*(write(driver, 20) for _ in range(6)))

    assert {seen[-1] for seen in streams} == {20}
    assert (stats.started, stats.finished, stats.cancelled, stats.running) == (6, 6, 0, 0)


async def test_a_stream_that_is_left_frees_its_place_for_the_next() -> None:
    clock = ManualClock(now_s=0.0)
    driver, stats = make_driver(clock, max_num_seqs=1)
    first = asyncio.create_task(write(driver, 10_000))
    await ticks()
    second = asyncio.create_task(write(driver, 1))
    await ticks()
    assert (stats.running, stats.queued) == (1, 1)
    first.cancel()
    for _ in range(5):
        await ticks()
        clock.advance(0.01)

    assert await second == [1]
    assert (stats.finished, stats.cancelled, stats.running, stats.queued) == (1, 1, 0, 0)


async def test_one_that_gives_up_while_it_waits_is_not_worked_on() -> None:
    clock = ManualClock(now_s=0.0)
    driver, stats = make_driver(clock, max_num_seqs=1)
    async with AsyncExitStack() as open_streams:
        entering = asyncio.create_task(
            open_streams.enter_async_context(driver.generate(prompt_tokens=1, new_tokens=500))
        )
        await ticks()
        clock.advance(0.01)
        await entering
        waiting = asyncio.create_task(write(driver, 5))
        await ticks()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert (stats.running, stats.queued, stats.cancelled) == (1, 0, 1)
        assert driver.load().totals.first_tokens == 1


async def test_busy_slots_are_told_one_by_one() -> None:
    clock = ManualClock(now_s=0.0)
    driver, _ = make_driver(clock, engine_kind="slots", slots=3)
    writing = asyncio.create_task(write(driver, 1))
    await ticks()

    assert driver.busy_slots() == [True, False, False]
    clock.advance(1.0)
    await writing


def test_slots_have_a_context_each_and_no_common_cache() -> None:
    limits = batch_limits(replace(SETTINGS, engine_kind="slots", slots=5, n_ctx=99_999))

    assert (limits.kind, limits.seqs_max, limits.kv_tokens) == ("slots", 5, 0)
