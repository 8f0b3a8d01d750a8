from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from sparewatt.sim.results.summary import measure
from sparewatt.sim.scenario import (
    CONTEXT_GB,
    GB,
    HOLDERS_MIN,
    RESERVED_VRAM_GB,
    SERVER_SHARES_DATACENTRE,
    SERVER_SHARES_HOME,
    SLOTS,
    USABLE_VRAM_SHARE,
    WARM_MODELS_MAX,
    SimModel,
    make_scenario,
    nominal_decode_tps,
    nominal_prefill_tps,
    price_table,
    read_fleet,
    read_models,
)
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
    read_in_an_hour = 3600 * nominal_prefill_tps(site, model)
    written_in_an_hour = 3600 * nominal_decode_tps(site, model)
    assert prices.prompt[model.number, site.number] * read_in_an_hour == pytest.approx(site.usd_per_hour)
    assert prices.completion[model.number, site.number] * written_in_an_hour == pytest.approx(site.usd_per_hour)
    assert (prices.prompt < prices.completion).all()


def test_prices_go_by_the_cards_table_and_not_by_the_machines_speed() -> None:
    scenario = make_scenario(20, seed=1)
    site, model = scenario.sites[3], scenario.models[0]
    slow = replace(site, speed=0.1)
    assert nominal_prefill_tps(slow, model) == nominal_prefill_tps(site, model)
    assert nominal_decode_tps(slow, model) == nominal_decode_tps(site, model)


def test_a_server_with_few_slots_is_priced_by_what_it_can_batch() -> None:
    scenario = make_scenario(20, seed=1)
    site, model = replace(scenario.sites[3], server="ollama"), scenario.models[0]
    single, eight = (nominal_decode_tps(replace(site, slots=slots), model) for slots in (1, 8))
    assert 2 * single < eight < 8 * single
    assert nominal_decode_tps(replace(site, slots=500), model) == eight


def test_homes_and_data_centres_run_the_servers_of_their_kind() -> None:
    sites = make_scenario(1000, seed=1).sites
    for shares, at_home in ((SERVER_SHARES_HOME, True), (SERVER_SHARES_DATACENTRE, False)):
        found = Counter(site.server for site in sites if site.gpu.at_home is at_home)
        assert set(found) == set(shares)
        for server, share in shares.items():
            assert found[server] / found.total() == pytest.approx(share, abs=0.08)
    assert all(site.slots in SLOTS[site.server] for site in sites)


def test_a_model_has_the_parameters_that_its_name_says() -> None:
    totals = {model.name: model.total_params for model in read_models()}
    assert totals["8b-fp16"] == 8e9
    assert totals["moe-30b-a3b-int4"] == 30e9
    assert SimModel(0, "unnamed", 1e9, 5e8, 1e5, 1.0).total_params == 5e8


def test_latency_includes_the_users_round_trip() -> None:
    case = make_case(StudyConfig(nodes=20, rate=3.0, duration_s=5.0), None, seed=1)
    jobs = case.jobs()
    assert {job.user_rtt_s for job in jobs} <= set(case.scenario.rtt_s[case.regions[0]])
    job = max(jobs, key=lambda job: job.user_rtt_s)
    job.first_token_s, job.finished_s, job.site = job.arrived_s + 1.0, job.arrived_s + 2.0, 0
    measured = measure([job])
    assert measured.ttft_s[0] == pytest.approx(1.0 + job.user_rtt_s)
    assert measured.e2e_s[0] == pytest.approx(2.0 + job.user_rtt_s)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("nodes", [100, 500])
def test_every_model_begins_on_some_machines_that_have_room_for_it(nodes: int, seed: int) -> None:
    scenario = make_scenario(nodes, seed=seed)
    for model in scenario.models:
        fitting = [site for site in scenario.sites if site.fits(model)]
        holding = [site for site in fitting if model.number in site.warm]
        assert len(holding) >= min(len(fitting), HOLDERS_MIN) - 1
    for site in scenario.sites:
        room = USABLE_VRAM_SHARE * site.gpu.vram_gb - RESERVED_VRAM_GB - CONTEXT_GB
        assert len(site.warm) <= WARM_MODELS_MAX
        assert sum(scenario.models[number].weights_bytes for number in site.warm) <= room * GB
