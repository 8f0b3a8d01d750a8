"""The folder that agents share: its lock over processes, whole files, and what is wrong with it in words."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.node.leases.machine import folder as module
from sparewatt.node.leases.machine.folder import LOCK_NAME, MachineAccountError, MachineFolder
from sparewatt.node.leases.machine.records import AgentRecord
from tests.unit.node.leases.machine.agents import address

RESERVE = """
import sys
from pathlib import Path
from sparewatt.core.clock import SystemClock
from sparewatt.node.leases.capacity import LeaseCapacity
from tests.unit.node.leases.machine.agents import agent, key
own = agent(Path(sys.argv[1]), int(sys.argv[2]), SystemClock())
one = LeaseCapacity(cpu_milli=1_000)
print("ready", flush=True)
sys.stdin.readline()
whole = LeaseCapacity(cpu_milli=8_000)
print(sum(own.reserve(key(int(sys.argv[2]), number), one, whole=whole) for number in range(8)))
"""


def record(number: int = 1) -> AgentRecord:
    return AgentRecord(node=address(number), pid=1, started=1.0, pid_space=0, beat_unix_s=SystemClock().unix_s())


def test_two_processes_never_promise_more_than_the_machine_has(tmp_path: Path) -> None:
    root = Path(__file__).parents[5]
    agents = [
        subprocess.Popen(
            [sys.executable, "-c", RESERVE, str(tmp_path / "machine"), str(number)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2)
    ]
    for each in agents:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in agents:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    granted = [int(each.communicate(timeout=30)[0]) for each in agents]
    assert sum(granted) == 8, granted


def test_a_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from sparewatt.node.leases.machine.folder import MachineFolder\n"
        "with MachineFolder(Path(sys.argv[1])).locked():\n    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(MachineAccountError, match="Another process holds"), MachineFolder(tmp_path).locked():
            pass
        holder.kill()
        holder.wait(10)
        with MachineFolder(tmp_path).locked():
            pass


def test_a_lock_that_was_removed_is_not_taken_for_the_one_that_others_see(tmp_path: Path) -> None:
    taken: list[int] = []

    def locker(_: int) -> bool:
        if not taken:
            (tmp_path / LOCK_NAME).unlink()
        taken.append(1)
        return True

    with MachineFolder(tmp_path, locker=locker).locked():
        assert len(taken) == 2
        assert (tmp_path / LOCK_NAME).exists()


def test_a_crash_before_the_replacement_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = MachineFolder(tmp_path)
    shared.write(record())

    def crash(_: Path, __: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(MachineAccountError, match="No space left"):
            shared.write(record())
    assert [each.node for each in shared.read_others(address(9))] == [address(1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{address(1)}.json"], "nothing else is left"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"node": "0x1"}', b"\xff\xfe"])
def test_a_corrupt_file_is_named_with_the_remedy(tmp_path: Path, body: bytes) -> None:
    shared, path = MachineFolder(tmp_path), tmp_path / f"{address(1)}.json"
    path.write_bytes(body)
    with pytest.raises(MachineAccountError, match="remove the file") as raised:
        shared.read_others(address(2))
    assert str(path) in raised.value.message
    assert shared.read_others(address(1)) == [], "its own agent does not need it"


def test_a_record_under_another_name_does_not_count(tmp_path: Path) -> None:
    MachineFolder(tmp_path).write(record(1))
    (tmp_path / f"{address(1)}.json").rename(tmp_path / f"{address(3)}.json")
    with pytest.raises(MachineAccountError, match="another agent"):
        MachineFolder(tmp_path).read_others(address(2))


def test_too_many_agents_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGENTS_MAX", 1)
    for number in (1, 2):
        MachineFolder(tmp_path).write(record(number))
    assert MachineFolder(tmp_path).read_others(address(1))
    with pytest.raises(MachineAccountError, match="more than 1 agents"):
        MachineFolder(tmp_path).read_others(address(3))


def test_the_default_folder_is_sticky_and_open_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "all"
    monkeypatch.setattr(module, "default_machine_dir", lambda: path)
    MachineFolder(path).write(record())
    assert stat.S_IMODE(path.stat().st_mode) == 0o1777
    assert stat.S_IMODE((path / f"{address(1)}.json").stat().st_mode) == 0o644
    own = tmp_path / "own"
    MachineFolder(own).write(record())
    assert not stat.S_IMODE(own.stat().st_mode) & stat.S_IWOTH, "one that the owner names is the owner's"


def test_a_file_in_the_folders_place_is_said(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(MachineAccountError, match="--machine-dir"), MachineFolder(path).locked():
        pass


def test_a_link_in_the_place_of_a_record_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("{}")
    (tmp_path / f"{address(1)}.json").symlink_to(target)
    with pytest.raises(MachineAccountError):
        MachineFolder(tmp_path).read_others(address(2))
