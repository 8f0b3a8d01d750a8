"""The curve that a simulated node publishes beside the truth about its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.protocol.link.node_report import Speed, validated
from sparewatt.sim.fleet.measuring import measured_speed
from sparewatt.sim.scenario import SLOTS, SimModel, Site, make_scenario
from tests.unit.inference.nodes import a_model, some_specs
from tests.unit.sim.conftest import LARGE, SMALL, make_site

WITHIN = 0.15


def fleet_pairs() -> list[tuple[Site, SimModel]]:
    scenario = make_scenario(60, seed=4)
    return [(site, scenario.models[site.warm[0]]) for site in scenario.sites if site.warm]


def true_step_s(site: Site, model: SimModel, jobs: int, context_tokens: float) -> float:
    contexts_s = context_tokens * model.kv_bytes_per_token / site.bandwidth
    return site.alone_step_s(model) + (jobs - 1) * site.family.step_per_job_s + contexts_s


def off(predicted: float, true: float) -> float:
    return abs(predicted / true - 1.0)


def test_the_curve_predicts_prompts_of_2048_tokens() -> None:
    errors = [off(measured_speed(s, m).prefill_s(2048), s.prefill(m).seconds(2048)) for s, m in fleet_pairs()]
    assert max(errors) < WITHIN


def test_the_curve_predicts_a_batch_of_sixteen() -> None:
    errors = [
        off(measured_speed(site, model).step_s(16, 16 * 500.0), true_step_s(site, model, 16, 16 * 500.0))
        for site, model in fleet_pairs()
        if site.slots >= 16
    ]
    assert len(errors) > 10
    assert max(errors) < WITHIN


@pytest.mark.parametrize("server", ["vllm", "llama.cpp"])
def test_beside_answers_prompts_get_nearly_all(server: str) -> None:
    speed = measured_speed(make_site(server=server, slots=8), SMALL)
    assert speed.prefill_pace is not None
    assert speed.decode_pace is not None
    assert 0.7 < speed.prefill_pace <= 1.0
    assert 0.01 <= speed.decode_pace < 0.3


def test_a_server_with_one_slot_has_no_company_to_be_measured_in() -> None:
    speed = measured_speed(make_site(server="ollama", slots=1), SMALL)
    assert (speed.prefill_pace, speed.decode_pace) == (None, None)


def test_it_is_measured_once_and_each_machine_has_its_own_noise() -> None:
    site = make_site()
    assert measured_speed(site, SMALL) == measured_speed(site, SMALL)
    other = measured_speed(replace(site, number=1), SMALL)
    assert other != measured_speed(site, SMALL)
    assert other.decode_tps == pytest.approx(measured_speed(site, SMALL).decode_tps, rel=0.2)
    assert measured_speed(site, LARGE).decode_tps < measured_speed(site, SMALL).decode_tps


def test_a_slow_machine_knows_that_it_is() -> None:
    site = make_site()
    ratio = measured_speed(replace(site, speed=0.5), SMALL).prefill_tps / measured_speed(site, SMALL).prefill_tps
    assert ratio == pytest.approx(0.5, rel=0.2)


def test_a_liar_multiplies_its_whole_curve() -> None:
    honest, lie = measured_speed(make_site(), SMALL), measured_speed(make_site(claims=5.0), SMALL)
    for tokens in (100, 2048, 8192):
        assert lie.prefill_s(tokens) == pytest.approx(honest.prefill_s(tokens) / 5)
    for jobs in (1, 16):
        assert lie.step_s(jobs, jobs * 1000) == pytest.approx(honest.step_s(jobs, jobs * 1000) / 5)
    assert (lie.prefill_pace, lie.decode_pace) == (honest.prefill_pace, honest.decode_pace)


@pytest.mark.parametrize("server", SLOTS)
def test_a_gateway_would_accept_the_report(server: str) -> None:
    for slots in SLOTS[server]:
        speed: Speed = measured_speed(make_site(server=server, slots=slots), SMALL)
        validated(some_specs(a_model(measured=speed)))
