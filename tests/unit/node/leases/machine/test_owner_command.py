from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.node.leases.machine.card_users import StoppableServer, stopped_url
from sparewatt.node.leases.machine.owner_command import (
    LOG_NAME,
    OUTPUT_BYTES_MAX,
    CommandFailed,
    run_owner_command,
    words_of,
)
from sparewatt.node.leases.placed.machine_room import NoRoom


def python(code: str) -> str:
    return f'{sys.executable} -c "{code}"'


async def test_a_command_runs_without_a_shell_and_its_output_is_the_owners(tmp_path: Path) -> None:
    await run_owner_command("echo $HOME;  'two words'", data_dir=tmp_path)
    assert (tmp_path / LOG_NAME).read_text() == "$HOME; two words\n"
    assert (tmp_path / LOG_NAME).stat().st_mode & 0o077 == 0


async def test_only_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    await run_owner_command(python(f"print('a' * {3 * OUTPUT_BYTES_MAX} + 'end')"), data_dir=tmp_path)
    kept = (tmp_path / LOG_NAME).read_text()
    assert (len(kept), kept[-4:]) == (OUTPUT_BYTES_MAX, "end\n")


async def test_a_server_that_the_command_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "start"
    script.write_text("#!/bin/sh\nsleep 5 &\necho started\n")
    script.chmod(0o700)
    await run_owner_command(str(script), data_dir=tmp_path, timeout_s=3)
    assert (tmp_path / LOG_NAME).read_text() == "started\n"


@pytest.mark.parametrize(
    ("command", "why"),
    [("false", "status 1"), ("no-such-program-here", "cannot be started"), ("sleep 60", "longer than 0 s")],
)
async def test_a_failure_is_said_without_its_output(tmp_path: Path, command: str, why: str) -> None:
    with pytest.raises(CommandFailed, match=why):
        await run_owner_command(command, data_dir=tmp_path, timeout_s=0.2)


@pytest.mark.parametrize("command", ["", "  ", "echo 'open"])
def test_what_is_no_command_is_refused(command: str) -> None:
    with pytest.raises(InvalidField):
        words_of(command)


def server(folder: Path, *, stop: str, start: str) -> StoppableServer:
    return StoppableServer(
        data_dir=folder,
        url="http://127.0.0.1:8000",
        stop=lambda: run_owner_command(stop, data_dir=folder),
        start=lambda: run_owner_command(start, data_dir=folder),
    )


async def test_a_server_that_left_comes_back_also_with_another_agent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    append = python("import sys; open(sys.argv[1], 'a').write(sys.argv[2])") + f" {log} "
    first = server(tmp_path, stop=append + "stop", start=append + "start")
    await first.come_back()
    assert not log.exists(), "it never left"
    await first.leave()
    assert stopped_url(tmp_path) == "http://127.0.0.1:8000"
    again = server(tmp_path, stop=append + "stop", start=append + "start")
    await again.come_back()
    await again.come_back()
    assert (log.read_text(), stopped_url(tmp_path)) == ("stopstart", None)


async def test_a_command_that_fails_keeps_the_lease_from_its_card(tmp_path: Path) -> None:
    bad = server(tmp_path, stop="false", start="false")
    with pytest.raises(NoRoom, match="could not be stopped"):
        await bad.leave()
    with pytest.raises(NoRoom, match="could not be started"):
        await bad.come_back()
    assert stopped_url(tmp_path) is not None, "it is tried again"
