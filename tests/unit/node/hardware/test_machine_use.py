"""Whether somebody else uses the machine."""

from __future__ import annotations

import pytest

from sparewatt.node.hardware.machine_use import MachineUse, system_cpu_seconds
from sparewatt.protocol.link.node_report import GpuReading
from sparewatt.testing import InstantClock


def machine(*, idle_share: float = 1.0, gpus: tuple[GpuReading, ...] = ()) -> MachineUse:
    """A machine with two cores, watched for a quarter of a second."""
    looks = iter([(100.0, 1000.0), (100.0 + 0.5 * idle_share, 1000.5)])
    return MachineUse(clock=InstantClock(), gpu_readings=lambda: gpus, cpu_seconds=lambda: next(looks))


@pytest.mark.parametrize(
    ("idle_share", "found"), [(1.0, None), (0.8, None), (0.5, "the processor is 50% in use"), (1.1, None)]
)
async def test_a_machine_without_a_gpu_is_judged_by_its_processor(idle_share: float, found: str | None) -> None:
    assert await machine(idle_share=idle_share).busy_with() == found
    assert await machine(idle_share=idle_share).busy_with(after_work=True) == found


async def test_a_processor_whose_counters_stand_still_counts_as_idle() -> None:
    use = MachineUse(clock=InstantClock(), cpu_seconds=lambda: (1.0, 2.0))
    assert await use.busy_with() is None


async def test_a_machine_with_gpus_is_judged_by_the_busiest_of_them() -> None:
    gpus = (GpuReading(utilisation=0.0), GpuReading(utilisation=0.9))
    assert await machine(gpus=gpus, idle_share=1.0).busy_with() == "a GPU is 90% in use"
    assert await machine(gpus=gpus[:1], idle_share=0.0).busy_with() is None


async def test_after_our_own_work_a_gpus_reading_says_nothing() -> None:
    assert await machine(gpus=(GpuReading(utilisation=1.0),)).busy_with(after_work=True) is None


async def test_a_gpu_that_does_not_report_its_use_counts_as_idle() -> None:
    assert await machine(gpus=(GpuReading(),)).busy_with() is None


def test_this_machine_counts_its_seconds() -> None:
    idle_s, all_s = system_cpu_seconds()
    assert 0 <= idle_s <= all_s
