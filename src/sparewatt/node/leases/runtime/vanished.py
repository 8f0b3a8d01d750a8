"""Programs that have ended without their engine noticing: podman shows a container as running, and its process is gone.

podman hears of an end from a monitor of the container (conmon). If that one was killed, nobody tells it, and podman can
neither stop nor start such a container again, only remove it. A process is known to be a container's by its control
group. Until one was found so, it is not known whether the engine counts processes as this machine does (it may be in a
virtual machine), and nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VANISHED_S = 5.0
"""An engine that has just restarted, or is busy, needs a moment to note an end."""


def control_group_of(pid: int) -> str:
    """As /proc has it; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""


@dataclass(slots=True)
class VanishedPrograms:
    control_group: Callable[[int], str] = control_group_of
    _counts_alike: bool = False
    _since_s: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, found: Mapping[str, Any], *, now_s: float) -> None:
        """What the engine shows of a container now."""
        state = found.get("State") or {}
        pid, is_up = int(state.get("Pid") or 0), state.get("Running") or state.get("Status") == "stopping"
        if not is_up or pid <= 0 or self._is_there(pid, str(found.get("Id") or "")):
            self._since_s.pop(name, None)
        elif self._counts_alike:
            self._since_s.setdefault(name, now_s)

    def has_vanished(self, name: str, *, now_s: float) -> bool:
        return name in self._since_s and now_s - self._since_s[name] >= VANISHED_S

    def forget(self, name: str) -> None:
        self._since_s.pop(name, None)

    def _is_there(self, pid: int, container_id: str) -> bool:
        if not container_id or container_id not in self.control_group(pid):
            return False
        self._counts_alike = True
        return True
