from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from sparewatt.sim.fleet.machine import SimMachine, SimModelState
from sparewatt.sim.scenario import SimGpu
from tests.unit.sim.conftest import GPU, LARGE, SMALL, THIRD, RecordedEvents, make_job, run_out

Make = Callable[..., SimMachine]


@pytest.mark.parametrize("server", ["vllm", "llama.cpp"])
def test_a_job_alone_takes_its_prefill_and_its_steps(make_machine: Make, events: RecordedEvents, server: str) -> None:
    machine, job = make_machine(server=server), make_job(1)
    machine.accept(job, 0.0)
    run_out(machine)
    reading_s = machine.site.prefill(SMALL).seconds(1000)
    step_s = machine.site.alone_step_s(SMALL) + 1050 * 1e5 / machine.site.bandwidth
    assert [at_s for _, at_s in events.first] == pytest.approx([reading_s])
    assert [at_s for _, at_s in events.finished] == pytest.approx([reading_s + 100 * step_s])


def test_a_writer_all_but_stops_while_a_prompt_is_read(make_machine: Make, events: RecordedEvents) -> None:
    def answered_s(*, beside: int | None) -> float:
        events.first.clear()
        events.finished.clear()
        machine = make_machine()
        machine.accept(make_job(1, prompt=100, output=1000), 0.0)
        machine.wake(machine.next_event_s())
        if beside is not None:
            machine.accept(make_job(2, prompt=beside, output=1), events.first[0][1])
        run_out(machine)
        return dict(events.finished)[1]

    prompt_s = make_machine().site.prefill(SMALL).seconds(20_000)
    lost_s = answered_s(beside=20_000) - answered_s(beside=None)
    assert 0.9 * prompt_s < lost_s < 1.1 * prompt_s


def test_while_a_prompt_is_read_each_chunk_gives_every_writer_a_token(
    make_machine: Make, events: RecordedEvents
) -> None:
    machine = make_machine()
    machine.accept(make_job(1, prompt=100, output=1000), 0.0)
    machine.wake(machine.next_event_s())
    chunks, began_s = 10, events.first[0][1]
    machine.accept(make_job(2, prompt=chunks * (machine.site.family.chunk_tokens - 1)), began_s)
    while len(events.first) < 2:
        machine.wake(machine.next_event_s())
    written = 1000 - next(steps for steps, number, _ in machine.running_jobs() if number == 1)
    assert written == pytest.approx(chunks, rel=0.02)


def test_short_prompts_share_a_chunk_and_their_first_tokens_come_together(
    make_machine: Make, events: RecordedEvents
) -> None:
    machine = make_machine()
    machine.accept(make_job(0, prompt=3000, output=500), 0.0)
    for number in (1, 2, 3):
        machine.accept(make_job(number, prompt=300), 0.0)
    run_out(machine)
    first = dict(events.first)
    assert first[1] == first[2] == first[3] == first[0], "the rest of the long one leaves room for all three"


def test_a_chunk_holds_so_many_tokens_and_no_more(make_machine: Make, events: RecordedEvents) -> None:
    machine = make_machine()
    for number in range(4):
        machine.accept(make_job(number, prompt=1024), 0.0)
    run_out(machine)
    first = dict(events.first)
    assert first[1] < first[2], "the first to arrive was read at once, alone"
    assert sorted(first.values()) == [first[number] for number in range(4)]
    assert len(set(first.values())) > 2


def test_a_prompt_that_is_cancelled_in_the_midst_leaves_the_others_to_be_read(
    make_machine: Make, events: RecordedEvents
) -> None:
    machine, jobs = make_machine(), [make_job(number, prompt=5000) for number in range(2)]
    for job in jobs:
        machine.accept(job, 0.0)
    machine.wake(machine.next_event_s())
    machine.remove(jobs[0], machine.next_event_s() - 1e-6)
    run_out(machine)
    assert [number for number, _ in events.finished] == [1]
    assert (machine.jobs, machine.kv_used, machine.backlog_s()) == (0, 0.0, 0.0)


def test_a_prompt_beside_writers_takes_a_little_longer(make_machine: Make, events: RecordedEvents) -> None:
    machine = make_machine()
    machine.accept(make_job(1, output=1000), 0.0)
    machine.wake(machine.next_event_s())
    started_s, alone_s = events.first[0][1], machine.site.prefill(SMALL).seconds(1000)
    machine.accept(make_job(2), started_s)
    pace = machine.pace()
    machine.wake(machine.next_event_s())
    assert 0.8 < pace.prefill < 1.0
    assert 0.0 < pace.decode < 0.5
    assert events.first[1][1] - started_s == pytest.approx(alone_s / pace.prefill)


def test_prefill_is_in_order_of_arrival(make_machine: Make, events: RecordedEvents) -> None:
    machine = make_machine()
    for number in (3, 1, 2):
        machine.accept(make_job(number), 0.0)
    run_out(machine)
    assert [number for number, _ in events.first] == [3, 1, 2]


def test_a_job_waits_until_its_context_fits(make_machine: Make, events: RecordedEvents) -> None:
    machine = make_machine()
    room_tokens = int(machine.kv_capacity / 1e5)
    machine.accept(make_job(1, prompt=room_tokens - 200, output=100), 0.0)
    machine.accept(make_job(2, prompt=500, output=100), 0.0)
    run_out(machine)
    assert events.first[1][1] > events.finished[0][1]


def test_a_job_too_large_for_the_memory_runs_alone(make_machine: Make, events: RecordedEvents) -> None:
    machine = make_machine()
    machine.accept(make_job(1, prompt=int(2 * machine.kv_capacity / 1e5)), 0.0)
    run_out(machine)
    assert len(events.finished) == 1


def test_a_cold_model_is_loaded_before_the_prompt_is_read(make_machine: Make, events: RecordedEvents) -> None:
    machine, job = make_machine(), make_job(1, model=LARGE)
    machine.accept(job, 0.0)
    assert machine.states[LARGE.number] is SimModelState.LOADING
    run_out(machine)
    assert not job.was_warm
    assert events.first[0][1] >= machine.site.cold_load_s(LARGE)


def test_the_least_recently_used_idle_model_is_evicted(make_machine: Make) -> None:
    machine = make_machine(warm=(0, 1), gpu=replace(GPU, vram_gb=26.0))
    machine.accept(make_job(1, model=SMALL), 1.0)
    run_out(machine)
    machine.accept(make_job(2, model=THIRD), 50.0)
    assert machine.states[LARGE.number] is SimModelState.ON_DISK
    assert machine.states[SMALL.number] is SimModelState.WARM


def test_loading_a_second_model_leaves_room_for_contexts(make_machine: Make) -> None:
    machine = make_machine(warm=(0, 1))  # with SMALL still there, THIRD would leave 3.6 GB
    machine.accept(make_job(1, model=THIRD), 0.0)
    assert [machine.states[model.number] for model in (SMALL, LARGE)] == [SimModelState.ON_DISK] * 2
    busy = make_machine(warm=(0, 1))
    busy.accept(make_job(1, model=SMALL, output=5000), 0.0)
    busy.accept(make_job(2, model=THIRD), 0.1)
    assert busy.states[THIRD.number] is SimModelState.ON_DISK
    run_out(busy)
    assert busy.states[THIRD.number] is SimModelState.WARM


def test_a_model_in_use_is_never_evicted(make_machine: Make) -> None:
    machine = make_machine(warm=(0,), gpu=SimGpu("small", 17.0, 100.0, 1000.0, 0.3, 1.0, at_home=True))
    machine.accept(make_job(1, model=SMALL, output=5000), 0.0)
    machine.accept(make_job(2, model=LARGE), 0.1)
    assert machine.states[SMALL.number] is SimModelState.WARM
    assert machine.states[LARGE.number] is SimModelState.ON_DISK
    run_out(machine)
    assert machine.states[LARGE.number] is SimModelState.WARM


def test_a_dead_machine_loses_all_jobs_and_comes_back_as_it_started(make_machine: Make) -> None:
    machine = make_machine()
    jobs = [make_job(n, model=model) for n, model in enumerate((SMALL, SMALL, LARGE))]
    for job in jobs:
        machine.accept(job, 0.0)
    assert {job.number for job in machine.die(0.01)} == {0, 1, 2}
    machine.revive(10.0)
    assert machine.jobs == 0
    assert machine.kv_used == machine.active_bytes == 0.0
    assert machine.states[SMALL.number] is SimModelState.WARM
    assert machine.states[LARGE.number] is SimModelState.ON_DISK


def test_running_sums_equal_sums_over_all_jobs(make_machine: Make) -> None:
    rng = random.Random(7)  # noqa: S311 (repeatable)
    machine = make_machine(warm=(0, 1), gateways=3)
    now_s = 0.0
    for number in range(200):
        now_s += rng.random() * 0.05
        while machine.next_event_s() <= now_s:
            machine.wake(machine.next_event_s())
        job = make_job(number, model=rng.choice((SMALL, LARGE, THIRD)), prompt=rng.randrange(1, 3000), output=50)
        job.gateway = rng.randrange(3)
        machine.accept(job, now_s)
        if rng.random() < 0.1:
            machine.remove(rng.choice(machine.all_jobs()), now_s)
        for gateway, share in enumerate(machine.gateway_totals):
            own = [job for job in machine.all_jobs() if job.gateway == gateway]
            assert share.jobs == len(own)
            assert share.kv_read_bytes == pytest.approx(sum(job.kv_read_bytes for job in own), abs=1.0)
            assert share.unread_s == pytest.approx(
                sum(machine.prefill_s(job) for job in own if not job.is_read), abs=1e-6
            )
            assert set(share.models) == {job.model.number for job in own}
        assert machine.jobs == sum(share.jobs for share in machine.gateway_totals)
    run_out(machine, events=10_000)
    assert machine.jobs == 0
    assert machine.kv_used == machine.kv_read == machine.active_bytes == 0.0


def test_the_decoding_batch_is_bounded_by_the_slots(make_machine: Make) -> None:
    machine = make_machine(slots=2)
    for number in range(4):
        machine.accept(make_job(number), 0.0)
    seen = 0
    while machine.jobs:
        machine.wake(machine.next_event_s())
        seen = max(seen, machine.running)
    assert seen == 2


def test_a_job_beyond_the_slots_waits_until_an_answer_ends(make_machine: Make, events: RecordedEvents) -> None:
    machine = make_machine(slots=1)
    for number in range(2):
        machine.accept(make_job(number), 0.0)
    run_out(machine)
    first_end_s = events.finished[0][1]
    assert events.first[1][1] == pytest.approx(first_end_s + machine.site.prefill(SMALL).seconds(1000))


def test_what_the_oracle_is_told_is_what_is_left(make_machine: Make) -> None:
    machine = make_machine()
    jobs = [make_job(number, prompt=3000) for number in range(3)]
    for job in jobs:
        machine.accept(job, 0.0)
    whole_s = machine.prefill_s(jobs[0])
    assert machine.backlog_s() == pytest.approx(3 * whole_s)
    machine.wake(machine.next_event_s())
    machine.advance(machine.next_event_s() - 1e-3)
    reading, chunk = machine.prompts_in_reading()
    assert chunk is not None
    assert chunk.left_s == pytest.approx(1e-3)
    assert [(prompt.job.number, prompt.done, prompt.in_chunk) for prompt in reading] == [(0, 2048, 952), (1, 0, 1096)]
    assert [prompt.job.number for prompt in machine.waiting_prompts()] == [2]
    assert machine.running_jobs() == []
    reading[0].done = chunk.left_s = 0  # copies
    assert machine.prompts_in_reading()[0][0].done == 2048
    arriving = machine.arriving_prompt(make_job(9, prompt=3000))
    assert (arriving.cached, arriving.left) == (0, 3000)


def test_the_main_model_is_the_first_that_is_loaded_else_the_first_that_fits(make_machine: Make) -> None:
    assert make_machine(warm=(1,)).main_model() is LARGE
    assert make_machine(warm=()).main_model() is SMALL
