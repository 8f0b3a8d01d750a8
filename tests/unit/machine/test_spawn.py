"""Log files of child processes: private, appended to, rotated."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sparewatt.machine import spawn


def test_a_log_is_private_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    for line in (b"one\n", b"two\n"):
        with spawn.open_log(path) as log:
            log.write(line)
    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_over_its_bound_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "LOG_BYTES_MAX", 10)
    path = tmp_path / "x.log"
    path.write_bytes(b"0123456789A")
    with spawn.open_log(path) as log:
        log.write(b"new")
    assert path.read_bytes() == b"new"
    assert (tmp_path / "x.log.1").read_bytes() == b"0123456789A"


def test_a_log_at_its_bound_is_not_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "LOG_BYTES_MAX", 10)
    path = tmp_path / "x.log"
    path.write_bytes(b"0123456789")
    spawn.open_log(path).close()
    assert path.read_bytes() == b"0123456789"


def test_the_tail_is_the_end_of_what_was_written_since(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"before\nafter\n")
    assert spawn.read_tail(path) == "before\nafter"
    assert spawn.read_tail(path, since=7) == "after"
    path.write_bytes(b"a" * 5000 + b"end")
    assert len(spawn.read_tail(path)) == spawn.LOG_TAIL_BYTES
    assert spawn.read_tail(path).endswith("aend")
