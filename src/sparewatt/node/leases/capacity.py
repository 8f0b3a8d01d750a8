"""How much of the machine leases may have: GPUs, processors, memory and disk, as measured here. Whole GPUs only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from sparewatt.core.limits import MIB
from sparewatt.protocol.contracts.match import Specification

MEMORY_SHARE_PERCENT = DISK_SHARE_PERCENT = 75
"""Of all memory, and of the free disk, unless the owner says how much: the system and inference need some."""
UINT16_MAX, UINT32_MAX = (1 << 16) - 1, (1 << 32) - 1
"""What the protocol's fields hold."""


class LeaseCapacity(NamedTuple):
    """In the units of the market's `Specification`."""

    gpus: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    disk_mib: int = 0

    def covers(self, wanted: LeaseCapacity) -> bool:
        return all(mine >= needed for mine, needed in zip(self, wanted, strict=True))

    def less(self, taken: LeaseCapacity) -> LeaseCapacity:
        """What is left, nowhere below 0."""
        return LeaseCapacity(*(max(0, mine - gone) for mine, gone in zip(self, taken, strict=True)))

    def more(self, added: LeaseCapacity) -> LeaseCapacity:
        return LeaseCapacity(*(mine + new for mine, new in zip(self, added, strict=True)))


def capacity_of(specification: Specification) -> LeaseCapacity:
    return LeaseCapacity(specification.gpus, specification.cpu_milli, specification.memory_mib, specification.disk_mib)


def measure_capacity(
    *,
    gpus: int,
    data_dir: Path,
    cpus: Callable[[], int | None] = os.cpu_count,
    memory_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().total),
    disk_free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
) -> LeaseCapacity:
    """`gpus`: as many as the driver reports."""
    return LeaseCapacity(
        gpus=min(gpus, UINT16_MAX),
        cpu_milli=min(1_000 * (cpus() or 1), UINT32_MAX),
        memory_mib=min(memory_bytes() // MIB, UINT32_MAX),
        disk_mib=min(disk_free_bytes(data_dir) // MIB, UINT32_MAX),
    )


def offered_capacity(measured: LeaseCapacity, *, wanted: tuple[int | None, ...]) -> LeaseCapacity:
    """What the owner wants to lend of it, never more than there is. None: all GPUs and processors, and a share of
    memory and disk."""
    usual = LeaseCapacity(
        gpus=measured.gpus,
        cpu_milli=measured.cpu_milli,
        memory_mib=measured.memory_mib * MEMORY_SHARE_PERCENT // 100,
        disk_mib=measured.disk_mib * DISK_SHARE_PERCENT // 100,
    )
    return LeaseCapacity(
        *(
            share if limit is None else min(limit, there)
            for share, limit, there in zip(usual, wanted, measured, strict=True)
        )
    )
