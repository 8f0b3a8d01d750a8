"""The agent's log goes to its file; the terminal shows only messages to the owner."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.core.log import Logger, log_without_stderr
from sparewatt.node.log_file import FILE, log_to_file
from sparewatt.node.process import also_logged

_log = Logger("sparewatt.node")


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_an_owner_message_is_once_on_the_terminal_and_once_in_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log_without_stderr()
    _log.warning("before_the_file")
    log_to_file(tmp_path)
    also_logged(print)("joined")
    _log.warning("gpu_not_read", why="NVMLError_LibraryNotFound")
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("joined\n", "")
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line.get("text", line["event"]) for line in lines] == ["joined", "gpu_not_read"]


def test_without_a_file_the_log_goes_to_stderr_and_repeats_no_owner_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log_without_stderr()
    log_to_file(tmp_path / "absent")
    also_logged(print)("joined")
    _log.warning("measure_failed")
    shown = capfd.readouterr()
    assert shown.out == "joined\n"
    assert [json.loads(line)["event"] for line in shown.err.splitlines()] == ["measure_failed"]
