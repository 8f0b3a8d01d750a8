from __future__ import annotations

import pytest

from sparewatt.core.limits import MIB
from sparewatt.node.leases.runtime.disk_watch import (
    LOOK_S_MAX,
    LOOK_S_MIN,
    ROOM_BYTES,
    WRITE_BYTES_PER_S,
    DiskWatch,
    look_again_s,
)

LIMIT = 1_000 * MIB


class Disk:
    def __init__(self) -> None:
        self.used = 0
        self.looks = 0
        self.paused: list[str] = []

    async def used_bytes(self, _name: str) -> int:
        self.looks += 1
        return self.used

    async def pause(self, name: str) -> None:
        self.paused.append(name)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def watch(disk: Disk) -> DiskWatch:
    watch = DiskWatch(used_bytes=disk.used_bytes, pause=disk.pause)
    watch.watch("a", LIMIT)
    return watch


def test_it_looks_more_often_near_the_limit_and_never_so_rarely_that_a_fast_disk_is_filled() -> None:
    assert look_again_s(0, 10**15) == LOOK_S_MAX
    assert look_again_s(LIMIT, LIMIT) == look_again_s(2 * LIMIT, LIMIT) == LOOK_S_MIN
    assert look_again_s(0, 5 * WRITE_BYTES_PER_S) == 5.0


async def test_a_full_disk_pauses_once(watch: DiskWatch, disk: Disk) -> None:
    disk.used = LIMIT - 1
    await watch.look("a", now_s=0)
    assert not watch.is_full("a")
    disk.used = LIMIT
    await watch.look("a", now_s=0.1)
    assert disk.looks == 1, "it is not time yet"
    for now_s in (100, 200):
        await watch.look("a", now_s=now_s)
    assert (watch.is_full("a"), disk.paused, disk.looks) == (True, ["a"], 2)


async def test_an_unpaused_program_has_a_little_room_to_delete_and_no_more(watch: DiskWatch, disk: Disk) -> None:
    disk.used = LIMIT
    await watch.look("a", now_s=0)
    watch.unpaused("a")
    disk.used = LIMIT + ROOM_BYTES - 1
    await watch.look("a", now_s=1)
    assert not watch.is_full("a")
    disk.used = LIMIT + ROOM_BYTES
    await watch.look("a", now_s=100)
    assert disk.paused == ["a", "a"]


async def test_who_has_made_room_is_watched_as_before(watch: DiskWatch, disk: Disk) -> None:
    disk.used = LIMIT
    await watch.look("a", now_s=0)
    watch.unpaused("a")
    disk.used = 0
    await watch.look("a", now_s=100)
    disk.used = LIMIT
    await watch.look("a", now_s=200)
    assert disk.paused == ["a", "a"]


async def test_what_is_not_watched_is_not_looked_at(watch: DiskWatch, disk: Disk) -> None:
    watch.forget("a")
    watch.unpaused("a")
    await watch.look("a", now_s=0)
    assert (disk.looks, watch.is_full("a")) == (0, False)


async def test_a_new_limit_counts_at_the_next_look(watch: DiskWatch, disk: Disk) -> None:
    disk.used = LIMIT
    watch.watch("a", 2 * LIMIT)
    await watch.look("a", now_s=0)
    assert disk.paused == []
