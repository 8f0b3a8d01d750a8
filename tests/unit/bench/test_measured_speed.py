"""The comparison itself: exact on a server whose speed is known, and wrong when the server changes behind its back."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from bench.measured_speed import ERROR_MAX, DirectTiming, Measured, compare, measure, time_directly

from sparewatt.core.rng import seeded
from sparewatt.node.measurement.job_timing import JobTimer
from sparewatt.node.measurement.model_speed import SpeedMeter
from sparewatt.protocol.link.node_report import Speed
from tests.unit.node.measurement.curve_server import CurveServer, VirtualClock
from tests.unit.node.rig import MODEL

CURVE = Speed(
    prefill_tps=45_000.0,
    decode_tps=199.0,
    ttft_s=0.008,
    step_per_job_s=0.0001,
    prefill_pace=0.9,
    decode_pace=0.1,
)


async def measured(server: CurveServer, clock: VirtualClock) -> Measured:
    meter = SpeedMeter(backend=server, clock=clock, rng=seeded(1))
    return await measure(meter, MODEL, slots=64, context_length=8192)


@pytest.fixture(scope="module")
def found() -> Measured:
    """One measurement for all: it is the expensive part, and changes nothing of the server."""

    async def once() -> Measured:
        clock = VirtualClock()
        async with clock.running():
            return await measured(CurveServer(clock, CURVE), clock)

    return asyncio.run(once())


async def test_what_a_node_finds_is_what_direct_timings_show(found: Measured) -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, CURVE)
        timings = await time_directly(JobTimer(server, clock), MODEL, slots=64)
    assert [(each.answers, round(each.tokens, -3)) for each in timings] == [
        (0, 2000),
        (1, 0),
        (16, 0),
        (1, 2000),
        (16, 2000),
    ]
    rows = compare(timings, found.full)
    assert all(abs(row.error) < ERROR_MAX / 3 for row in rows), rows


def test_a_quick_measurement_takes_what_is_fixed_for_a_cost_of_the_prompt(found: Measured) -> None:
    assert found.quick.ttft_s == 0.0
    assert found.quick.prefill_tps < found.full.prefill_tps


async def test_a_server_that_became_slower_is_seen(found: Measured) -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, CURVE)
        server.curve = msgspec.structs.replace(CURVE, prefill_tps=20_000.0, decode_tps=100.0)
        rows = compare(await time_directly(JobTimer(server, clock), MODEL, slots=64), found.full)
    assert all(row.error < -ERROR_MAX for row in rows), rows


async def test_a_small_server_is_timed_with_what_it_takes() -> None:
    clock = VirtualClock()
    async with clock.running():
        timings = await time_directly(JobTimer(CurveServer(clock, CURVE), clock), MODEL, slots=4)
    assert {each.answers for each in timings} == {0, 1, 4}


def test_contexts_cost_by_the_memory_only_where_the_curve_does_not_say() -> None:
    step = DirectTiming(16, 2000.0, 0.01)
    plain = step.found_s(CURVE)
    assert step.found_s(CURVE, context_token_s=1e-8) == pytest.approx(plain + 16 * 2000 * 1e-8)
    says = msgspec.structs.replace(CURVE, step_per_token_s=2e-8)
    assert step.found_s(says, context_token_s=1e-8) == pytest.approx(plain + 16 * 2000 * 2e-8)


def test_a_row_says_what_was_timed() -> None:
    assert DirectTiming(0, 2048.0, 0.05).what == "prompt of 2048 tokens"
    assert DirectTiming(16, 90.4, 0.05).what == "step with 16 at once, 90 tokens each"
