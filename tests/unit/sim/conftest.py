from __future__ import annotations

from collections.abc import Callable

import pytest

from sparewatt.sim.fleet.machine import MachineCallbacks, SimMachine
from sparewatt.sim.scenario import GB, SimGpu, SimModel, Site
from sparewatt.sim.traffic import SimJob

SMALL = SimModel(0, "small", 8 * GB, 4e9, 1e5, 0.5)
LARGE = SimModel(1, "large", 10 * GB, 5e9, 1e5, 0.3)
THIRD = SimModel(2, "third", 9 * GB, 4e9, 1e5, 0.2)
GPU = SimGpu("test", 24.0, 100.0, 1000.0, 0.3, 1.0, at_home=True)
H200 = SimGpu("H200", 141.0, 989.0, 4800.0, 3.0, 1.0, at_home=False)


class RecordedEvents:
    """Collects a machine's callbacks."""

    def __init__(self) -> None:
        self.first: list[tuple[int, float]] = []
        self.finished: list[tuple[int, float]] = []
        self.changes = 0

    def callbacks(self) -> MachineCallbacks:
        def changed(_site: int) -> None:
            self.changes += 1

        return MachineCallbacks(
            lambda job, now_s: self.first.append((job.number, now_s)),
            lambda job, now_s: self.finished.append((job.number, now_s)),
            changed,
        )


def make_site(
    *, warm: tuple[int, ...] = (0,), gpu: SimGpu = GPU, slots: int = 256, server: str = "vllm", claims: float = 1.0
) -> Site:
    return Site(
        number=0,
        gpu=gpu,
        region=0,
        last_mile_s=0.01,
        speed=1.0,
        usd_per_hour=0.3,
        cold_load_spread=1.0,
        warm=warm,
        mtbf_s=1e12,
        slots=slots,
        server=server,
        claims=claims,
    )


def make_job(
    number: int, *, model: SimModel = SMALL, prompt: int = 1000, output: int = 100, at_s: float = 0.0
) -> SimJob:
    return SimJob(number, model, at_s, prompt, output, region=0)


def run_out(machine: SimMachine, *, events: int = 1000) -> None:
    """Let the machine finish all its jobs."""
    for _ in range(events):
        due_s = machine.next_event_s()
        if due_s == float("inf"):
            return
        machine.wake(due_s)
    raise AssertionError("the machine never becomes idle")


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


@pytest.fixture
def make_machine(events: RecordedEvents) -> Callable[..., SimMachine]:
    def make(
        *,
        warm: tuple[int, ...] = (0,),
        gpu: SimGpu = GPU,
        gateways: int = 1,
        slots: int = 256,
        server: str = "vllm",
        claims: float = 1.0,
    ) -> SimMachine:
        site = make_site(warm=warm, gpu=gpu, slots=slots, server=server, claims=claims)
        return SimMachine(site, (SMALL, LARGE, THIRD), events.callbacks(), gateways=gateways)

    return make
