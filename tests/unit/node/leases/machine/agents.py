"""Several agents of one machine in one process, each with its own account of the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.machine.folder import MachineFolder
from sparewatt.node.leases.machine.machine_account import MachineAccount
from sparewatt.node.leases.reservations import BidKey
from sparewatt.testing.clocks import ManualClock

MACHINE = LeaseCapacity(gpus=2, cpu_milli=8_000, memory_mib=16_000, disk_mib=100_000)
HALF = LeaseCapacity(gpus=1, cpu_milli=4_000, memory_mib=8_000, disk_mib=50_000)
CARDS = ("0", "1")


def key(number: int, attempt: int = 0) -> BidKey:
    return number.to_bytes(32, "big"), attempt


def address(number: int) -> str:
    return f"0x{number:040x}"


def agent(folder: Path, number: int, clock: ManualClock, **changes: Any) -> MachineAccount:
    given: dict[str, Any] = {
        "folder": MachineFolder(folder),
        "node": address(number),
        "clock": clock,
        "notify": [].append,
        "machine": lambda: MACHINE,
        "is_offering": lambda: True,
        "engine": "podman",
    }
    return MachineAccount(**(given | changes))
