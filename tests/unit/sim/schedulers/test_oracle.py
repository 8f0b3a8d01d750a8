"""The oracle: what it may know, what its roll-outs change, and what it does without its secrets."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sparewatt.sim.fleet.rollout import roll_out
from sparewatt.sim.scenario import FaultRates, Scenario, make_scenario, read_models
from sparewatt.sim.schedulers.oracle import OUTPUT_TOKENS_FIRST, FleetState, Oracle, Secrets
from sparewatt.sim.study import ORACLE_VARIANTS, StudyConfig, make_case, run_oracle
from sparewatt.sim.traffic import SimJob
from sparewatt.sim.world import AttemptEnd, World
from tests.unit.sim.conftest import H200, make_site

MODEL = read_models()[0]
both = pytest.mark.parametrize("roll_outs", [False, True], ids=["estimate", "roll-outs"])


def twins(count: int = 2, **changes: object) -> Scenario:
    """Equal machines beside each other; `changes` are of the first."""
    site = make_site(gpu=H200, warm=(0,))
    sites = [replace(site, number=number) for number in range(count)]
    sites[0] = replace(sites[0], **changes)  # type: ignore[arg-type]
    return replace(make_scenario(1, seed=1), sites=tuple(sites))


def a_world(scenario: Scenario) -> World:
    return World(scenario, seed=1, gateway_regions=(0,))


def an_oracle(world: World, *, roll_outs: bool = True, secrets: Secrets | None = None) -> Oracle:
    oracle = Oracle(world, slowdown_weight=1.0, roll_outs=roll_outs, secrets=secrets)
    world.scheduler = oracle
    return oracle


def a_job(number: int = 1, *, prompt: int = 1000, output: int = 100) -> SimJob:
    return SimJob(number, MODEL, 0.0, prompt, output, region=0)


@both
def test_of_two_equal_machines_the_idle_one_is_chosen(*, roll_outs: bool) -> None:
    world = a_world(twins())
    oracle = an_oracle(world, roll_outs=roll_outs)
    world.machines[0].accept(a_job(9, prompt=20_000, output=2000), 0.0)
    oracle.on_machine_change(0, 0.0)
    assert oracle.choose(a_job(), 0.0) == 1


@both
def test_jobs_on_their_way_count(*, roll_outs: bool) -> None:
    oracle = an_oracle(a_world(twins()), roll_outs=roll_outs)
    chosen = [oracle.choose(a_job(number, prompt=8000), 0.0) for number in range(4)]
    assert sorted(site for site in chosen if site is not None) == [0, 0, 1, 1]


@both
def test_nobody_is_chosen_who_cannot(*, roll_outs: bool) -> None:
    world = a_world(twins(is_garbage=True))
    oracle = an_oracle(world, roll_outs=roll_outs)
    assert oracle.choose(a_job(), 0.0) == 1
    world.machines[1].die(1.0)
    oracle.on_machine_change(1, 1.0)
    assert oracle.choose(a_job(2), 1.0) is None


@both
def test_a_machine_that_will_die_is_avoided_unless_deaths_are_no_secret_of_the_oracle(*, roll_outs: bool) -> None:
    def chosen(*, deaths: bool) -> int | None:
        world = a_world(twins(usd_per_hour=0.01))
        world.deaths_s[0] = 0.5
        oracle = an_oracle(world, roll_outs=roll_outs, secrets=Secrets(deaths=deaths))
        oracle.on_machine_change(0, 0.0)
        return oracle.choose(a_job(output=1000), 0.0)

    assert (chosen(deaths=True), chosen(deaths=False)) == (1, 0)


def test_a_played_cost_is_its_own_time_and_what_all_others_lose() -> None:
    world = a_world(twins())
    oracle, machine, job = an_oracle(world), world.machines[0], a_job(2, prompt=4000)
    machine.accept(a_job(1, output=500), 0.0)
    oracle.on_machine_change(0, 0.0)
    alone, played = roll_out(machine, [], None, 0.0), roll_out(machine, [], job, 0.0)
    assert played.ends_s > alone.ends_s
    own_s = world.rtt_s(0, 0) + played.finish_s
    expected = own_s + played.ends_s - alone.ends_s + oracle._usd(job, 0)
    assert oracle._played_cost(job, 0, 0.0) == pytest.approx(expected)
    assert oracle._played_cost(job, 0, 0.0) == pytest.approx(expected), "what was remembered is the same"


def test_without_lengths_it_goes_by_the_mean_so_far() -> None:
    oracle = an_oracle(a_world(twins()), secrets=Secrets(lengths=False))
    job = a_job(output=5000)
    assert oracle._output_tokens(job) == OUTPUT_TOKENS_FIRST
    for number, output in enumerate((100, 200)):
        oracle.on_end(a_job(number, output=output), 1.0, end=AttemptEnd.DONE, report=None)
    oracle.on_end(a_job(9, output=10**6), 1.0, end=AttemptEnd.FAILED, report=None)
    mean = (OUTPUT_TOKENS_FIRST + 300) / 3
    assert oracle._output_tokens(job) == pytest.approx(mean)
    assert oracle._steps_left(job, 4990.0) == pytest.approx(mean - 10)
    assert oracle._steps_left(job, 10.0) == pytest.approx(mean / 8), "an answer that is longer goes on for a while"


@both
def test_without_lengths_the_choice_does_not_depend_on_them(*, roll_outs: bool) -> None:
    def chosen(output: int, *, lengths: bool) -> int | None:
        slow = replace(twins(3), sites=(*twins(3).sites[:2], replace(twins(3).sites[2], speed=0.3, usd_per_hour=0.01)))
        world = a_world(slow)
        oracle = an_oracle(world, roll_outs=roll_outs, secrets=Secrets(lengths=lengths))
        for site in (0, 1):
            world.machines[site].accept(a_job(10 + site, prompt=30_000, output=1), 0.0)
            oracle.on_machine_change(site, 0.0)
        return oracle.choose(a_job(output=output), 0.0)

    assert chosen(5, lengths=False) == chosen(5000, lengths=False)
    assert chosen(5, lengths=True) != chosen(5000, lengths=True)


@both
def test_without_news_it_does_not_know_what_another_gateway_has_just_sent(*, roll_outs: bool) -> None:
    def chosen(*, news: bool, gateway: int, now_s: float) -> int | None:
        """The second of two jobs; the first went to machine 0 at time 0, from gateway 0."""
        world = World(twins(), seed=1, gateway_regions=(0, 0))
        oracle = an_oracle(world, roll_outs=roll_outs, secrets=Secrets(news=news))
        first, second = a_job(1, prompt=30_000), a_job(2, prompt=8000)
        second.gateway = gateway
        first.site = oracle.choose(first, 0.0)
        assert first.site == 0
        return oracle.choose(second, now_s)

    soon_s, told_s = 0.001, 0.5
    assert chosen(news=True, gateway=1, now_s=soon_s) == 1
    assert chosen(news=False, gateway=1, now_s=soon_s) == 0
    assert chosen(news=False, gateway=0, now_s=soon_s) == 1, "its own jobs it knows"
    assert chosen(news=False, gateway=1, now_s=told_s) == 1


def test_jobs_that_are_hidden_are_not_played() -> None:
    world = a_world(twins())
    world.machines[0].accept(a_job(9, prompt=20_000), 0.0)
    job = a_job()
    idle, busy = (roll_out(world.machines[site], [], job, 0.0).finish_s for site in (1, 0))
    assert roll_out(world.machines[0], [], job, 0.0, hidden={9}).finish_s == pytest.approx(idle)
    assert busy > idle


def test_the_true_state_follows_the_machines() -> None:
    world = a_world(twins())
    fleet, machine, job = FleetState(world), world.machines[0], a_job()
    machine.accept(job, 1.0)
    fleet.update(0, 1.0)
    assert fleet.jobs.tolist() == [1.0, 0.0]
    assert fleet.backlog[0] == pytest.approx(machine.prefill_s(job))
    assert fleet.kv_free[0] == pytest.approx(machine.kv_capacity - job.kv_bytes)
    assert fleet.uses[MODEL.number].tolist() == [True, False]
    machine.die(2.0)
    fleet.update(0, 2.0)
    assert fleet.alive.tolist() == [False, True]
    assert fleet.jobs.tolist() == [0.0, 0.0]


def test_the_best_of_all_variants_counts_and_secrets_are_worth_something() -> None:
    case = make_case(
        StudyConfig(nodes=16, rate=6.0, duration_s=15.0, faults=FaultRates(mtbf_s=200.0), seeds=1), None, seed=3
    )
    knowing = run_oracle(case).summary
    blind = run_oracle(case, secrets=Secrets(lengths=False, deaths=False)).summary
    assert {roll_outs for _, roll_outs in ORACLE_VARIANTS} == {True, False}
    assert knowing.e2e_mean <= blind.e2e_mean
    assert math.isfinite(blind.e2e_mean)
