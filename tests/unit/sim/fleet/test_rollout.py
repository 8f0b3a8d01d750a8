"""A roll-out must tell exactly what the machine then does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from sparewatt.inference.prompt import BLOCK_TOKENS
from sparewatt.sim.fleet.machine import SimMachine
from sparewatt.sim.fleet.rollout import roll_out
from sparewatt.sim.traffic import SimJob
from tests.unit.sim.conftest import GPU, LARGE, SMALL, RecordedEvents, make_job, run_out

Make = Callable[..., SimMachine]
ROOMY = replace(GPU, vram_gb=30.0)


def random_job(rng: random.Random, number: int) -> SimJob:
    prompt = int(rng.lognormvariate(6.8, 1.2)) + 1
    job = make_job(number, model=rng.choice((SMALL, LARGE)), prompt=prompt, output=rng.randrange(1, 400))
    job.prefix = tuple(range(job.prompt_tokens // BLOCK_TOKENS))
    return job


def busy_machine(make_machine: Make, rng: random.Random, **site: object) -> tuple[SimMachine, float]:
    """A machine in the midst of its work, at a time that is no event of its own."""
    machine = make_machine(warm=(0, 1), gpu=ROOMY, **site)
    now_s = 0.0
    for number in range(rng.randrange(12)):
        now_s += rng.expovariate(10.0)
        while machine.next_event_s() <= now_s:
            machine.wake(machine.next_event_s())
        machine.accept(random_job(rng, number), now_s)
    return machine, now_s


@pytest.mark.parametrize("site", [{}, {"server": "llama.cpp", "slots": 4}, {"server": "ollama", "slots": 1}])
@pytest.mark.parametrize("seed", range(12))
def test_a_roll_out_is_what_the_machine_then_does(
    make_machine: Make, events: RecordedEvents, seed: int, site: dict[str, object]
) -> None:
    rng = random.Random(seed)  # noqa: S311 (repeatable)
    machine, now_s = busy_machine(make_machine, rng, **site)
    sent, further = [random_job(rng, 100 + n) for n in range(rng.randrange(3))], random_job(rng, 999)
    present = {job.number for job in machine.all_jobs()}
    without = roll_out(machine, sent, None, now_s)
    expected = roll_out(machine, sent, further, now_s)
    assert without.finish_s == 0.0
    assert expected.ends_s >= without.ends_s - 1e-9
    for job in (*sent, further):
        machine.accept(job, now_s)
    events.finished.clear()
    run_out(machine)
    ends = {number: at_s - now_s for number, at_s in events.finished}
    assert set(ends) == present | {job.number for job in sent} | {999}
    assert expected.finish_s == pytest.approx(ends.pop(999), rel=1e-6)
    assert expected.ends_s == pytest.approx(sum(ends.values()), rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_a_roll_out_changes_nothing(make_machine: Make, events: RecordedEvents, seed: int) -> None:
    def finished(*, rolled_out: bool) -> list[tuple[int, float]]:
        events.finished.clear()
        machine, now_s = busy_machine(make_machine, random.Random(seed))  # noqa: S311 (repeatable)
        if rolled_out:
            roll_out(machine, [make_job(100)], make_job(101), now_s)
        run_out(machine)
        return [*events.finished]

    assert dict(finished(rolled_out=True)) == pytest.approx(dict(finished(rolled_out=False)))


def test_an_idle_machine_reads_and_writes_the_job_alone(make_machine: Make) -> None:
    machine, job = make_machine(), make_job(1)
    step_s = machine.site.alone_step_s(SMALL) + job.kv_read_bytes / machine.site.bandwidth
    expected_s = machine.site.prefill(SMALL).seconds(1000) + 100 * step_s
    assert roll_out(machine, [], job, 5.0) == pytest.approx((expected_s, 0.0))


def test_a_machine_without_jobs_has_nothing_to_play(make_machine: Make) -> None:
    assert roll_out(make_machine(), [], None, 5.0) == (0.0, 0.0)


def test_believed_lengths_replace_the_true_ones(make_machine: Make) -> None:
    machine = make_machine()
    machine.accept(make_job(1, output=1000), 0.0)
    machine.wake(machine.next_event_s())
    now_s = machine.next_event_s() / 2
    true = roll_out(machine, [], None, now_s)
    believed = roll_out(machine, [], None, now_s, steps_left=lambda _job, left: left / 2)
    assert believed.ends_s == pytest.approx(true.ends_s / 2)
