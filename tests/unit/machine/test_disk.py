"""Free space, space reserved ahead of time, and the errors of a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sparewatt.machine.disk import disk_full_error, free_bytes, is_disk_full, reserve_space


@pytest.mark.parametrize(("number", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_no_space_and_no_quota_are_a_full_disk(number: int, *, is_full: bool) -> None:
    assert is_disk_full(OSError(number, os.strerror(number))) is is_full
    assert is_disk_full(disk_full_error())


def test_free_space_shrinks_with_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert free_bytes(tmp_path) > 0
    found = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert free_bytes(tmp_path) <= found.f_bfree * found.f_frsize


@pytest.mark.parametrize("has_fallocate", [True, False])
def test_reserved_space_is_part_of_the_file_and_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_fallocate: bool
) -> None:
    if not has_fallocate:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with path.open("r+b") as file:
        reserve_space(file.fileno(), 3, 200_000)
        assert os.fstat(file.fileno()).st_blocks * 512 >= 200_000
    assert path.read_bytes() == b"abc" + bytes(200_000)


def test_a_disk_that_takes_nothing_more_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match="No space left"):
        reserve_space(file.fileno(), 0, 10)
