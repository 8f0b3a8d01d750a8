from __future__ import annotations

from collections import Counter

import pytest

from sparewatt.sim.results.summary import measure
from sparewatt.sim.scenario import CONTEXT_GB, GB, make_scenario, price_table, read_fleet
from sparewatt.sim.study import StudyConfig, make_case


@pytest.mark.parametrize(("nodes", "seed"), [(500, 1), (500, 2), (37, 1)])
def test_a_fleet_has_each_card_by_its_share(nodes: int, seed: int) -> None:
    found = Counter(site.gpu.name for site in make_scenario(nodes, seed=seed).sites)
    assert sum(found.values()) == nodes
    for gpu in read_fleet():
        assert abs(found[gpu.name] - gpu.share * nodes) < 1


def test_seeds_change_the_order_of_cards() -> None:
    one, other = ([site.gpu.name for site in make_scenario(100, seed=seed).sites] for seed in (1, 2))
    assert one != other


def test_warm_models_leave_room_for_contexts() -> None:
    scenario = make_scenario(300, seed=1)
    for site in scenario.sites:
        held = sum(scenario.models[number].weights_bytes for number in site.warm)
        assert site.usable_bytes - held >= CONTEXT_GB * GB
        assert all(site.fits(scenario.models[number]) for number in site.warm)


def test_an_hour_of_prefill_earns_as_much_as_an_hour_of_decoding() -> None:
    scenario = make_scenario(20, seed=1)
    prices = price_table(scenario)
    site, model = scenario.sites[3], scenario.models[0]
    read_in_an_hour = 3600 * site.flops / site.speed / (2 * model.active_params)
    assert prices.prompt[model.number, site.number] * read_in_an_hour == pytest.approx(site.usd_per_hour)
    assert (prices.prompt < prices.completion).all()


def test_latency_includes_the_users_round_trip() -> None:
    case = make_case(StudyConfig(nodes=20, rate=3.0, duration_s=5.0), None, seed=1)
    jobs = case.jobs()
    assert {job.user_rtt_s for job in jobs} <= set(case.scenario.rtt_s[case.regions[0]])
    job = max(jobs, key=lambda job: job.user_rtt_s)
    job.first_token_s, job.finished_s, job.site = job.arrived_s + 1.0, job.arrived_s + 2.0, 0
    measured = measure([job])
    assert measured.ttft_s[0] == pytest.approx(1.0 + job.user_rtt_s)
    assert measured.e2e_s[0] == pytest.approx(2.0 + job.user_rtt_s)
