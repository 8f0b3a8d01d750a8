"""What is over is counted some at a time, and nobody who reads a count can tell."""

from __future__ import annotations

from sparewatt.core.limits import JOBS_UNSETTLED_MAX
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.dispatcher import unwatched
from tests.unit.gateway.small_gateway import make_services
from tests.unit.gateway.test_live_feed import fail_job


def fail_jobs(services: Services, count: int) -> None:
    for number in range(count):
        fail_job(services, f"match_{number}")


def jobs_counted(services: Services) -> int:
    return sum(sum(meter.ends.values()) for meter in services.meters._jobs.models.values())


def test_jobs_are_counted_when_enough_of_them_are_over() -> None:
    services = make_services()
    fail_jobs(services, JOBS_UNSETTLED_MAX - 1)
    assert jobs_counted(services) == 0
    fail_jobs(services, 1)
    assert jobs_counted(services) == JOBS_UNSETTLED_MAX


def test_whoever_reads_a_count_sees_every_job_that_is_over() -> None:
    services = make_services()
    fail_jobs(services, 1)
    assert sum(sum(meter.ends.values()) for meter in services.meters.jobs.models.values()) == 1
    fail_jobs(services, 1)
    assert services.history.tally.take(["network"])["network", ""].jobs == 2
    fail_jobs(services, 1)
    assert len(services.dispatcher.to_store) == 3


async def test_nothing_waits_for_longer_than_between_two_looks() -> None:
    services = make_services()
    fail_jobs(services, 1)
    await services.live.look()
    assert jobs_counted(services) == 1


def test_a_feed_hears_of_jobs_only_while_somebody_watches() -> None:
    services = make_services()
    assert services.dispatcher.watch is unwatched
    services.live.enter()
    assert services.dispatcher.watch == services.live.on_match
    services.live.pass_on(1)
    services.live.leave()
    assert services.dispatcher.watch == services.live.on_match  # another process shows what happens here
    services.live.stop_passing(1)
    assert services.dispatcher.watch is unwatched
