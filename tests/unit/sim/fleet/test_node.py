from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparewatt.protocol.link.node_report import NodeSpecs, validated
from sparewatt.sim.fleet.machine import SimMachine
from sparewatt.sim.fleet.measuring import measured_speed
from sparewatt.sim.fleet.node import SimNode, SimReporter, kv_capacity_bytes, node_slots
from sparewatt.sim.scenario import SLOTS, make_scenario, read_models
from sparewatt.sim.traffic import SimJob
from tests.unit.sim.conftest import H200, LARGE, SMALL, RecordedEvents, make_job, make_site

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
    assert SimNode(make_machine()).late_ttft_s(a_promised_job(), 0.0) is None


def test_a_node_with_much_prefill_refuses_only_jobs_with_a_promise(make_machine: Make) -> None:
    node = busy(make_machine(), make_job(1, prompt=15_000))
    assert node.late_ttft_s(a_promised_job(), 0.0) is not None
    assert node.late_ttft_s(a_promised_job(promised_s=0.0), 0.0) is None
    assert node.late_ttft_s(a_promised_job(promised_s=60.0), 0.0) is None


def test_a_refusal_states_the_time_that_is_expected(make_machine: Make) -> None:
    machine, ahead = make_machine(), make_job(1, prompt=15_000)
    late_s = busy(machine, ahead).late_ttft_s(a_promised_job(), 0.0)
    assert late_s == pytest.approx(machine.prefill_s(ahead) + machine.prefill_s(make_job(9)), rel=0.25)


def test_a_node_that_must_load_the_model_refuses(make_machine: Make) -> None:
    assert SimNode(make_machine()).late_ttft_s(a_promised_job(model=LARGE), 0.0) is not None


def test_a_node_with_full_memory_refuses_until_the_job_has_ended(make_machine: Make) -> None:
    machine = make_machine()
    large = make_job(1, prompt=int(machine.kv_capacity / SMALL.kv_bytes_per_token) - 500)
    node = busy(machine, large)
    node.first_token(large, 0.0)
    assert node.late_ttft_s(a_promised_job(), 0.0) is not None
    node.end(large, 0.0)
    assert node.late_ttft_s(a_promised_job(), 0.0) is None


def test_a_restarted_node_has_no_jobs(make_machine: Make) -> None:
    node = busy(make_machine(), make_job(1, prompt=15_000))
    node.restart()
    assert node.late_ttft_s(a_promised_job(), 0.0) is None


def test_a_liar_believes_its_lie_and_refuses_too_few(make_machine: Make) -> None:
    ahead = make_job(1, prompt=20_000)
    honest, liar = (busy(make_machine(claims=claims), ahead) for claims in (1.0, 5.0))
    asked = a_promised_job(promised_s=0.5)
    assert honest.late_ttft_s(asked, 0.0) is not None
    assert liar.late_ttft_s(asked, 0.0) is None


def test_a_node_with_one_slot_refuses_while_an_answer_is_written(make_machine: Make) -> None:
    def refuses(server: str) -> bool:
        first = make_job(1, prompt=100)
        node = busy(make_machine(server=server, slots=4), first)
        node.first_token(first, 0.0)
        return node.late_ttft_s(a_promised_job(promised_s=0.1), 0.0) is not None

    assert refuses("ollama")
    assert not refuses("llama.cpp")


# reports


def specs_of(**changes: object) -> NodeSpecs:
    scenario = make_scenario(1, seed=1)
    site = make_site(warm=(0,), gpu=H200, **changes)  # type: ignore[arg-type]
    scenario = replace(scenario, sites=(site,))
    machine = SimMachine(site, scenario.models, RecordedEvents().callbacks())
    (specs,) = SimReporter([machine], [SimNode(machine)], scenario, reports_prefix_cache=True).specs
    return specs


@pytest.mark.parametrize("server", SLOTS)
def test_every_kind_of_server_makes_a_report_that_a_gateway_accepts(server: str) -> None:
    specs = specs_of(server=server, slots=SLOTS[server][-1])
    assert validated(specs) == specs
    assert specs.backend == server
    assert specs.bandwidth_bytes_s == 4800e9
    assert {model.id for model in specs.models} == {model.name for model in read_models()}


def test_speeds_are_published_as_measured_and_a_liars_as_claimed() -> None:
    honest, liar = specs_of(), specs_of(claims=5.0)
    site, model = make_site(gpu=H200), read_models()[0]
    assert honest.models[0].measured == measured_speed(site, model)
    assert liar.models[0].measured == measured_speed(replace(site, claims=5.0), model)


def test_only_a_server_that_says_so_has_a_prefix_cache() -> None:
    assert specs_of(server="vllm").models[0].prefix_cache_tokens > 0
    assert specs_of(server="ollama", slots=4).models[0].prefix_cache_tokens == 0


def test_a_nodes_slots_and_memory_are_what_its_server_tells(make_machine: Make) -> None:
    machine = make_machine(server="llama.cpp", slots=8)
    assert node_slots(machine) == 8
    believed = kv_capacity_bytes(machine)
    assert believed is not None
    assert believed == pytest.approx(machine.kv_capacity, rel=0.25)
    assert node_slots(make_machine(server="ollama", slots=4)) == 1
