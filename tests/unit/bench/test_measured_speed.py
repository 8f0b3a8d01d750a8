"""The comparison itself: exact on a server whose speed is known, and wrong when the server changes behind its back."""

from __future__ import annotations

import msgspec
from bench.measured_speed import ERROR_MAX, compare, measured

from sparewatt.core.rng import seeded
from sparewatt.node.measurement.job_timing import JobTimer
from sparewatt.node.measurement.model_speed import SpeedMeter
from sparewatt.protocol.link.node_report import Speed
from tests.unit.node.measurement.curve_server import CurveServer, VirtualClock
from tests.unit.node.rig import MODEL

CURVE = Speed(prefill_tps=45_000.0, decode_tps=199.0, ttft_s=0.008, step_per_job_s=0.0001, prefill_pace=0.9)


async def test_what_a_node_finds_is_what_direct_timings_show() -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, CURVE)
        meter = SpeedMeter(backend=server, clock=clock, rng=seeded(1))
        speed, _ = await measured(meter, MODEL, slots=64, context_length=8192)
        rows = await compare(JobTimer(server, clock), MODEL, speed, slots=64)
    assert [row.what.split()[0] for row in rows] == ["prompt", "step", "step"]
    assert all(abs(row.error) < ERROR_MAX / 3 for row in rows), rows


async def test_a_server_that_became_slower_is_seen() -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, CURVE)
        meter = SpeedMeter(backend=server, clock=clock, rng=seeded(1))
        speed, _ = await measured(meter, MODEL, slots=64, context_length=8192)
        server.curve = msgspec.structs.replace(CURVE, prefill_tps=20_000.0, decode_tps=100.0)
        rows = await compare(JobTimer(server, clock), MODEL, speed, slots=64)
    assert all(row.error < -ERROR_MAX for row in rows), rows
