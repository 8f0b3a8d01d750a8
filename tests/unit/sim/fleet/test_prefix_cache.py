"""Prefix caches of simulated machines, and what prefix affinity gains by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparewatt.inference.prompt import BLOCK_TOKENS
from sparewatt.sim.fleet.machine import SimMachine
from sparewatt.sim.fleet.prefix_cache import PrefixCache
from sparewatt.sim.scenario import make_scenario
from sparewatt.sim.study import StudyConfig, make_case, run_oracle, run_scheduler
from sparewatt.sim.traffic import SimJob, TraceRequest, make_jobs
from tests.unit.sim.conftest import LARGE, SMALL, RecordedEvents, make_job, run_out

Make = Callable[..., SimMachine]
BLOCK_BYTES = BLOCK_TOKENS * SMALL.kv_bytes_per_token


def a_conversation(number: int, blocks: int, *, first: int = 0, at_s: float = 0.0) -> SimJob:
    job = make_job(number, prompt=blocks * BLOCK_TOKENS + 100, at_s=at_s)
    job.prefix = tuple(range(first, first + blocks))
    return job


def test_a_cached_prefix_needs_no_prefill(make_machine: Make, events: RecordedEvents) -> None:
    machine = make_machine()
    machine.accept(a_conversation(1, 4), 0.0)
    run_out(machine)
    again = a_conversation(2, 6)
    began_s = events.finished[-1][1]
    machine.accept(again, began_s)
    assert again.cached_tokens == 4 * BLOCK_TOKENS
    run_out(machine)
    curve, rest = machine.site.prefill(SMALL), 2 * BLOCK_TOKENS + 100
    attended_s = (again.prompt_tokens + 4 * BLOCK_TOKENS) * curve.square_s
    assert events.first[-1][1] - began_s == pytest.approx(curve.fixed_s + rest * (curve.token_s + attended_s))
    assert machine.backlog_s() == machine.totals.unread_s == 0.0


def test_a_dead_machine_loses_its_cache(make_machine: Make) -> None:
    machine = make_machine()
    machine.accept(a_conversation(1, 4), 0.0)
    run_out(machine)
    machine.die(1000.0)
    machine.revive(1001.0)
    assert machine.cache.tokens_of(a_conversation(2, 4)) == 0


def test_the_least_recently_used_blocks_are_evicted_first_from_the_end_of_a_prompt() -> None:
    cache = PrefixCache()
    cache.add(a_conversation(1, 4))
    cache.add(a_conversation(2, 2, first=100))
    cache.trim(5 * BLOCK_BYTES)
    assert cache.tokens_of(a_conversation(3, 4)) == 3 * BLOCK_TOKENS
    cache.trim(2 * BLOCK_BYTES)
    assert cache.tokens_of(a_conversation(3, 4)) == 0
    assert cache.tokens_of(a_conversation(3, 2, first=100)) == 2 * BLOCK_TOKENS
    cache.trim(-1.0)
    assert len(cache) == 0


def test_unloading_a_model_drops_its_blocks() -> None:
    cache, other = PrefixCache(), a_conversation(1, 2, first=50)
    other.model = LARGE
    cache.add(other)
    cache.add(a_conversation(2, 2))
    cache.drop_model(LARGE.number)
    assert (len(cache), cache.tokens_of(other)) == (2, 0)


def test_the_last_token_is_always_read() -> None:
    cache, job = PrefixCache(), make_job(1, prompt=2 * BLOCK_TOKENS)
    job.prefix = (1, 2)
    cache.add(job)
    assert cache.use(job) == 2 * BLOCK_TOKENS - 1


# conversations


def conversations(n_talks: int = 30, turns: int = 6) -> list[TraceRequest]:
    """Requests ten seconds apart, each two blocks longer than the one before."""
    return [
        TraceRequest(turn * 10.0 + talk / n_talks, (2 * turn + 8) * BLOCK_TOKENS + 50, 20,
                (0, *(1000 * (talk + 1) + block for block in range(2 * turn + 7))))
        for turn in range(turns)
        for talk in range(n_talks)
    ]  # fmt: skip


def test_a_conversation_stays_with_its_model_and_region_and_copies_share_nothing() -> None:
    jobs = make_jobs(conversations(), make_scenario(5, seed=1), rate=7.5, duration_s=60.0, seed=1)
    assert 1.9 < len(jobs) / len(conversations()) < 3.1
    seen: dict[int, tuple[int, int]] = {}
    for job in jobs:
        assert seen.setdefault(job.prefix[1], (job.model.number, job.region)) == (job.model.number, job.region)
    assert len({job.prefix for job in jobs}) == len(jobs)
    assert [job.arrived_s for job in jobs] == sorted(job.arrived_s for job in jobs)
    assert jobs == sorted(jobs, key=lambda job: job.number)


def test_a_trace_without_prefixes_gives_jobs_without_them() -> None:
    plain = [replace(request, prefix_blocks=()) for request in conversations()]
    jobs = make_jobs(plain, make_scenario(5, seed=1), rate=3.0, duration_s=60.0, seed=1)
    assert {job.prefix for job in jobs} == {()}


def hit_share(jobs: list[SimJob]) -> float:
    return sum(job.cached_tokens for job in jobs) / sum(job.prompt_tokens for job in jobs)


def test_affinity_raises_the_hit_rate_and_shortens_the_wait() -> None:
    config = StudyConfig(nodes=40, rate=3.0, duration_s=40.0, seeds=1, prefix_ram_gb=64.0)
    trace = conversations(turns=12)
    with_it, without = (
        run_scheduler(make_case(replace(config, affinity=affinity), trace, seed=2), "balanced")
        for affinity in (True, False)
    )
    assert len(with_it.jobs) > 50
    assert hit_share(with_it.jobs) > hit_share(without.jobs)
    assert with_it.measurements.ttft_s.mean() < without.measurements.ttft_s.mean()
    assert not any(job.believed_tokens for job in without.jobs)


def test_the_oracle_knows_the_caches() -> None:
    case = make_case(StudyConfig(nodes=40, rate=3.0, duration_s=20.0, seeds=1), conversations(turns=9), seed=2)
    assert hit_share(run_oracle(case).jobs) > 0
