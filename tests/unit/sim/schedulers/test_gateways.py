from __future__ import annotations

import statistics

import pytest

from sparewatt.core.limits import LINK_JOBS_MAX, LOAD_REPORT_INTERVAL_S
from sparewatt.core.refusal import would_refuse
from sparewatt.inference.admission.model import WAITING_S_MAX
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.node_row import REFERENCE_TOKENS
from sparewatt.sim.scenario import FaultRates
from sparewatt.sim.schedulers.gateways import SimGateways
from sparewatt.sim.study import StudyCase, StudyConfig, make_case, make_scheduler, nearest_gateways
from sparewatt.sim.traffic import SimJob
from sparewatt.sim.world import World


def run_clock(world: World, *, until_s: float) -> None:
    """Let virtual time pass without jobs."""
    world.open_jobs = 1
    world.run_until(until_s=until_s)


class Forbidden:
    """Replaces the true state while a gateway decides."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"a gateway read the true state: {name}")

    def __getitem__(self, key: object) -> object:
        raise AssertionError("a gateway read the true state")


def make(*, gateways: int = 1, faults: FaultRates | None = None) -> StudyCase:
    config = StudyConfig(nodes=20, rate=3.0, duration_s=5.0, gateways=gateways, faults=faults or FaultRates())
    return make_case(config, None, seed=3)


@pytest.mark.parametrize("name", ["balanced", "neuralgrid", "neuralgrid-kind", "least-loaded", "p2c"])
def test_a_gateway_chooses_without_the_true_state(name: str) -> None:
    case = make()
    world = case.world()
    scheduler = make_scheduler(name, world, heartbeat_s=5.0, seed=1)
    assert isinstance(scheduler, SimGateways)
    scheduler._world = Forbidden()  # type: ignore[assignment]
    scheduler._reporter = Forbidden()  # type: ignore[assignment]
    assert scheduler.choose(case.jobs()[0], 1.0) is not None


def test_the_choice_does_not_depend_on_the_answers_true_length() -> None:
    def chosen(output_tokens: int) -> int | None:
        case = make()
        job = case.jobs()[0]
        asked = SimJob(0, job.model, 0.0, job.prompt_tokens, output_tokens, region=0)
        return SimGateways(case.world(), BALANCED, heartbeat_s=5.0, seed=1).choose(asked, 1.0)

    assert chosen(5) == chosen(5000)


def test_reports_arrive_later_than_they_were_made() -> None:
    case = make()
    world = case.world()
    gateways = SimGateways(world, BALANCED, heartbeat_s=1.0, seed=1)
    world.scheduler = gateways
    job = case.jobs()[0]
    job.gateway = 0
    site = gateways.choose(job, 0.0)
    assert site is not None
    row = gateways.tables[0].get(gateways._ids[site])
    assert row is not None
    before = row.load
    world.machines[site].accept(job, 0.0)
    assert row.load is before


def test_own_jobs_are_not_counted_twice() -> None:
    case = make(gateways=8)
    world = case.world()
    gateways = SimGateways(world, BALANCED, heartbeat_s=5.0, seed=1)
    job = case.jobs()[0]
    site = next(m.site.number for m in world.machines if job.model.number in m.site.warm)
    job.gateway = 2
    world.machines[site].accept(job, 0.0)
    mine, theirs = gateways.report(2, site, 0.0), gateways.report(3, site, 0.0)
    assert mine is not None
    assert theirs is not None
    assert (mine.load.foreign, mine.load.foreign_backlog_s, mine.load.foreign_models) == (0, 0.0, ())
    assert theirs.load.foreign == 1
    assert theirs.load.foreign_backlog_s > 0
    assert theirs.load.foreign_models == (job.model.name,)


def test_a_dead_machine_reports_nothing() -> None:
    world = make().world()
    gateways = SimGateways(world, BALANCED, heartbeat_s=5.0, seed=1)
    world.machines[0].die(0.0)
    assert gateways.report(0, 0, 0.0) is None


def test_liars_claim_five_times_their_card() -> None:
    honest, lying = make(), make(faults=FaultRates(liars=1.0))

    def claimed(world: World) -> float:
        report = SimGateways(world, BALANCED, heartbeat_s=5.0, seed=1).report(0, 0, 0.0)
        assert report is not None
        speed = report.specs.models[0].measured
        assert speed is not None
        return speed.decode_tps

    assert claimed(lying.world()) == pytest.approx(5 * claimed(honest.world()))


@pytest.mark.parametrize("gateways", range(1, 9))
def test_every_region_has_a_gateway_to_go_to(gateways: int) -> None:
    case = make(gateways=gateways)
    near = nearest_gateways(case.scenario, case.regions)
    assert len(near) == 7
    assert {number for choice in near for number in choice} == set(range(gateways))


@pytest.mark.parametrize(
    ("own_s", "promised_s", "refuses"), [(1.34, 1.0, False), (1.36, 1.0, True), (0.14, 0.0, False)]
)
def test_a_node_refuses_beyond_the_promise_noise_and_the_price_of_a_refusal(
    own_s: float, promised_s: float, *, refuses: bool
) -> None:
    assert would_refuse(own_ttft_s=own_s, promised_ttft_s=promised_s) is refuses


def test_a_job_waits_in_admission_until_a_slot_is_free() -> None:
    case = make()
    world = case.world()
    gateways = SimGateways(world, BALANCED, heartbeat_s=5.0, seed=1)
    world.scheduler = gateways
    job, started, refused = case.jobs()[0], list[int](), list[float]()
    room = gateways.tables[0].capacity
    for row in gateways.tables[0]:
        row.own_jobs += LINK_JOBS_MAX
        room.update(row)
    gateways.admit(job, start=lambda job: started.append(job.number), refuse=lambda _, after_s: refused.append(after_s))
    assert (started, refused) == ([], [])
    row = next(row for row in gateways.tables[0] if job.model.name in row.models)
    row.own_jobs = 0
    room.update(row)
    assert started == []  # it starts in a later event
    run_clock(world, until_s=1.0)
    assert (started, refused) == ([job.number], [])


def test_a_job_for_which_no_slot_becomes_free_is_refused_with_a_retry_delay() -> None:
    case = make()
    world = case.world()
    gateways = SimGateways(world, BALANCED, heartbeat_s=5.0, seed=1)
    world.scheduler = gateways
    for row in gateways.tables[0]:
        row.own_jobs += LINK_JOBS_MAX
        gateways.tables[0].capacity.update(row)
    refused = list[float]()
    gateways.admit(case.jobs()[0], start=lambda _: None, refuse=lambda _, after_s: refused.append(after_s))
    run_clock(world, until_s=WAITING_S_MAX - 1)
    assert refused == []
    run_clock(world, until_s=WAITING_S_MAX + 1)
    assert [after_s > 0 for after_s in refused] == [True]


@pytest.mark.parametrize("sender", [0, 1])
def test_other_gateways_jobs_are_reported_before_the_next_heartbeat_and_own_ones_are_not(sender: int) -> None:
    case = make(gateways=2)
    world = case.world()
    gateways = SimGateways(world, BALANCED, heartbeat_s=500.0, seed=1)
    world.scheduler = gateways
    job = case.jobs()[0]
    job.gateway = sender
    site = next(m.site.number for m in world.machines if job.model.number in m.site.warm)
    world.machines[site].accept(job, 0.0)
    gateways.on_machine_change(site, 0.0)
    run_clock(world, until_s=2 * LOAD_REPORT_INTERVAL_S)
    rows = [table.get(gateways._ids[site]) for table in gateways.tables]
    assert [row.load.foreign for row in rows if row is not None] == [int(sender != 0), int(sender != 1)]


def learned_factors(*, liars: float) -> tuple[list[float], list[float]]:
    """Times longer than published, of reading and of writing, where enough jobs have taught it."""
    faults = FaultRates(liars=liars, mtbf_s=1e9)
    config = StudyConfig(nodes=12, rate=4.0, duration_s=120.0, faults=faults)
    case = make_case(config, None, seed=3)
    world = case.world()
    gateways = SimGateways(world, BALANCED, heartbeat_s=5.0, seed=1)
    world.run(case.jobs(), gateways, until_s=400.0)
    reading, writing = [], []
    for row in gateways.tables[0]:
        for model, position in row.positions.items():
            published, timing = row.models[model].measured, position.timing()
            assert published is not None
            if timing.reads >= 8:
                reading.append(timing.read_s / published.prefill_s(int(REFERENCE_TOKENS)))
            if timing.writes >= 8:
                writing.append(timing.step_s * published.decode_tps)
    return reading, writing


def test_what_is_learned_of_honest_nodes_is_that_they_are() -> None:
    reading, writing = learned_factors(liars=0.0)
    assert min(len(reading), len(writing)) >= 5
    assert statistics.median(reading) == pytest.approx(1.0, abs=0.15)
    assert statistics.median(writing) == pytest.approx(1.0, abs=0.15)
    assert max(*reading, *writing) < 2.0
    assert min(*reading, *writing) > 0.5


def test_liars_are_learned_as_such_from_their_jobs() -> None:
    reading, writing = learned_factors(liars=1.0)
    assert min(len(reading), len(writing)) >= 5
    assert statistics.median(reading) == pytest.approx(5.0, rel=0.35)
    assert statistics.median(writing) == pytest.approx(5.0, rel=0.35)
