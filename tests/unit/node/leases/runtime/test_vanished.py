"""A container whose process is gone although its engine shows it as running, and those of which nothing is known."""

from __future__ import annotations

from typing import Any

from sparewatt.node.leases.runtime.vanished import VANISHED_S, VanishedPrograms, control_group_of

ID, OTHER_ID = "ab" * 32, "cd" * 32


class Machine:
    def __init__(self) -> None:
        self.groups: dict[int, str] = {7: f"0::/libpod_parent/libpod-{ID}\n"}
        self.programs = VanishedPrograms(lambda pid: self.groups.get(pid, ""))

    def has_vanished(self, *, now_s: float, pid: int = 7, running: bool = True, name: str = "a", **state: Any) -> bool:
        found = {"Id": ID, "State": {"Running": running, "Pid": pid, **state}}
        self.programs.note(name, found, now_s=now_s)
        return self.programs.has_vanished(name, now_s=now_s)


def test_a_process_that_is_gone_for_a_while_has_vanished() -> None:
    machine = Machine()
    assert not machine.has_vanished(now_s=0)
    machine.groups.clear()
    assert not machine.has_vanished(now_s=1), "its engine may be about to note it"
    assert machine.has_vanished(now_s=1 + VANISHED_S)
    machine.programs.forget("a")
    assert not machine.programs.has_vanished("a", now_s=1 + VANISHED_S)


def test_a_number_that_another_process_has_now_is_not_the_container_s() -> None:
    machine = Machine()
    machine.has_vanished(now_s=0)
    machine.groups[7] = f"0::/libpod_parent/libpod-{OTHER_ID}\n"
    machine.has_vanished(now_s=1)
    assert machine.has_vanished(now_s=1 + VANISHED_S)


def test_one_that_its_engine_tries_to_stop_has_vanished_too() -> None:
    machine = Machine()
    machine.has_vanished(now_s=0)
    machine.groups.clear()
    machine.has_vanished(now_s=1, running=False, Status="stopping")
    assert machine.has_vanished(now_s=1 + VANISHED_S, running=False, Status="stopping")


def test_an_end_that_the_engine_noted_is_none_of_this() -> None:
    machine = Machine()
    machine.has_vanished(now_s=0)
    machine.groups.clear()
    machine.has_vanished(now_s=1)
    assert not machine.has_vanished(now_s=2, running=False, pid=0)
    assert not machine.has_vanished(now_s=2 + VANISHED_S, running=False, pid=0)


def test_of_an_engine_that_counts_processes_otherwise_nothing_is_said() -> None:
    machine = Machine()
    machine.groups.clear()
    machine.has_vanished(now_s=0)
    assert not machine.has_vanished(now_s=2 * VANISHED_S), "it may be in a virtual machine"


def test_the_kernel_knows_no_process_of_that_number() -> None:
    assert control_group_of(2**22 + 1) == ""
    assert control_group_of(1) != ""
