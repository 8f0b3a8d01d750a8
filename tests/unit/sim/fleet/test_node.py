from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparewatt.sim.fleet.machine import SimMachine
from sparewatt.sim.fleet.node import SimNode, own_speed
from sparewatt.sim.traffic import SimJob
from tests.unit.sim.conftest import LARGE, SMALL, make_job, make_site

Make = Callable[..., SimMachine]


def busy(machine: SimMachine, *jobs: SimJob) -> SimNode:
    node = SimNode(machine)
    for job in jobs:
        node.begin(job, 0.0)
    return node


def a_promised_job(*, promised_s: float = 0.5, **changes: object) -> SimJob:
    job = make_job(9, **changes)  # type: ignore[arg-type]
    job.promised_ttft_s = promised_s
    return job


def test_an_idle_node_takes_the_job(make_machine: Make) -> None:
    assert not SimNode(make_machine()).refuses(a_promised_job(), 0.0)


def test_a_node_with_much_prefill_refuses_only_jobs_with_a_promise(make_machine: Make) -> None:
    node = busy(make_machine(), make_job(1, prompt=15_000))
    assert node.refuses(a_promised_job(), 0.0)
    assert not node.refuses(a_promised_job(promised_s=0.0), 0.0)
    assert not node.refuses(a_promised_job(promised_s=60.0), 0.0)


def test_a_node_that_must_load_the_model_refuses(make_machine: Make) -> None:
    assert SimNode(make_machine()).refuses(a_promised_job(model=LARGE), 0.0)


def test_a_node_with_full_memory_refuses_until_the_job_has_ended(make_machine: Make) -> None:
    machine = make_machine()
    large = make_job(1, prompt=int(machine.kv_capacity / SMALL.kv_bytes_per_token) - 500)
    node = busy(machine, large)
    node.first_token(large, 0.0)
    assert node.refuses(a_promised_job(), 0.0)
    node.end(large, 0.0)
    assert not node.refuses(a_promised_job(), 0.0)


def test_a_restarted_node_has_no_jobs(make_machine: Make) -> None:
    node = busy(make_machine(), make_job(1, prompt=15_000))
    node.restart()
    assert not node.refuses(a_promised_job(), 0.0)


def test_a_node_knows_how_fast_it_is_and_a_liar_believes_its_lie() -> None:
    site = make_site()
    slow, liar = replace(site, speed=0.5), replace(site, claims=5.0)
    assert own_speed(slow, SMALL).prefill_tps == pytest.approx(own_speed(site, SMALL).prefill_tps / 2)
    assert own_speed(liar, SMALL).decode_tps == pytest.approx(own_speed(site, SMALL).decode_tps * 5)
