"""The engines of `make bench-servers` in the simulator: the same curve as the processes have."""

from __future__ import annotations

import pytest
from bench.batching_engines import CHUNK_TOKENS, ENGINES, KV_BYTES, SETTLED_S, EngineSite, _scenario, simulate
from bench.code_trace import CodeRequest, code_trace

from sparewatt.sim.fleet.machine import SimMachine
from sparewatt.sim.scenario import Site
from sparewatt.sim.servers.facts import ServerKind
from tests.unit.sim.conftest import RecordedEvents

KINDS: tuple[ServerKind, ...] = ("vllm", "sglang", "llama.cpp", "vllm", "sglang")


def sites() -> tuple[Site, ...]:
    return _scenario(KINDS).sites


def test_a_site_has_exactly_its_engines_curve() -> None:
    (model,) = _scenario(KINDS).models
    for site, engine in zip(sites(), ENGINES, strict=True):
        assert isinstance(site, EngineSite)
        assert site.alone_step_s(model) == pytest.approx(engine.step_s, abs=1e-9)
        assert site.prefill(model).seconds(3000) == pytest.approx(
            engine.curve.prefill_fixed_s + 3000 / engine.prefill_tps
        )
        assert KV_BYTES / site.bandwidth == pytest.approx(engine.step_per_token_s)
        assert site.family.chunk_tokens == CHUNK_TOKENS


def test_a_machines_memory_is_the_engines_kv_cache() -> None:
    scenario = _scenario(KINDS)
    for site, engine in zip(scenario.sites, ENGINES, strict=True):
        machine = SimMachine(site, scenario.models, RecordedEvents().callbacks())
        assert machine.kv_capacity == pytest.approx(engine.kv_tokens * KV_BYTES)


def test_one_request_takes_what_some_engine_needs_for_it() -> None:
    (ttft_s,), (e2e_s,), jobs = simulate(KINDS, [CodeRequest(0.0, 2000, 50, "")], seed=1)
    engine = ENGINES[jobs.index(1)]
    assert engine is ENGINES[0], "an idle network uses its fastest engine"
    assert ttft_s == pytest.approx(engine.prefill_fixed_s + 2000 / engine.prefill_tps, abs=0.01)
    assert e2e_s - ttft_s == pytest.approx(50 * (engine.step_s + 2025 * engine.step_per_token_s), rel=0.05)


def test_every_request_ends_and_the_fast_engines_get_most() -> None:
    trace = [CodeRequest(number * 0.1, 1500, 20, "") for number in range(60)]
    found = simulate(KINDS, trace, seed=1)
    assert sum(found.jobs) == 60
    assert max(found.e2e_s) < SETTLED_S
    assert found.jobs[0] > found.jobs[-1]


def test_an_engine_gets_its_jobs_whatever_it_calls_itself() -> None:
    """Some dialects tell weights and others do not: that must not make the same engine look slower under load."""
    trace = code_trace(rate=16.0, duration_s=10.0, seed=1)
    mixes: list[tuple[ServerKind, ...]] = [KINDS, ("vllm",) * 5, ("sglang",) * 5, ("llama.cpp",) * 5]
    runs = [simulate(mix, trace, seed=1) for mix in mixes]
    means_s = [sum(run.e2e_s) / len(run.e2e_s) for run in runs]
    assert max(means_s) < 1.1 * min(means_s), means_s
