from __future__ import annotations

from pathlib import Path

from sparewatt.node.leases.capacity import LeaseCapacity, capacity_of, measure_capacity, offered_capacity
from tests.unit.node.leases.lease_world import specification

MACHINE = LeaseCapacity(gpus=2, cpu_milli=8_000, memory_mib=1_000, disk_mib=2_000)


def test_it_is_measured_in_the_markets_units(tmp_path: Path) -> None:
    found = measure_capacity(
        gpus=2,
        data_dir=tmp_path,
        cpus=lambda: 12,
        memory_bytes=lambda: 64 << 30,
        disk_free_bytes=lambda _: (100 << 30) + 5,
    )
    assert found == LeaseCapacity(2, 12_000, 65_536, 102_400)


def test_this_machine_has_something(tmp_path: Path) -> None:
    found = measure_capacity(gpus=0, data_dir=tmp_path)
    assert found.gpus == 0
    assert min(found[1:]) > 0


def test_no_figure_outgrows_its_field(tmp_path: Path) -> None:
    found = measure_capacity(
        gpus=1 << 20,
        data_dir=tmp_path,
        cpus=lambda: 1 << 40,
        memory_bytes=lambda: 1 << 60,
        disk_free_bytes=lambda _: 1 << 60,
    )
    assert found == LeaseCapacity((1 << 16) - 1, (1 << 32) - 1, (1 << 32) - 1, (1 << 32) - 1)


def test_the_system_keeps_a_quarter_of_memory_and_disk_unless_the_owner_says_more() -> None:
    assert offered_capacity(MACHINE, wanted=(None,) * 4) == LeaseCapacity(2, 8_000, 750, 1_500)
    assert offered_capacity(MACHINE, wanted=(None, None, 1_000, 2_000)) == MACHINE


def test_an_owner_offers_less_but_never_more_than_there_is() -> None:
    assert offered_capacity(MACHINE, wanted=(1, 500, 100, 0)) == LeaseCapacity(1, 500, 100, 0)
    assert offered_capacity(MACHINE, wanted=(9, 90_000, 90_000, 90_000)) == MACHINE


def test_covering_is_in_every_member() -> None:
    wanted = capacity_of(specification())
    assert wanted.covers(wanted)
    for number in range(4):
        less = LeaseCapacity(*(size - (place == number) for place, size in enumerate(wanted)))
        assert not less.covers(wanted)


def test_what_is_left_is_nowhere_negative() -> None:
    assert MACHINE.less(MACHINE.more(MACHINE)) == LeaseCapacity()
    assert LeaseCapacity(1, 2, 3, 4).more(LeaseCapacity(1, 1, 1, 1)).less(LeaseCapacity(1, 2, 3, 4)) == (1, 1, 1, 1)
