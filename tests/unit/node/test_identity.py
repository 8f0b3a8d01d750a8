from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.core.rng import seeded
from sparewatt.node.identity import KEY_FILE, load_or_create_key
from sparewatt.protocol.signing import SigningKey


def test_a_key_is_generated_once(tmp_path: Path) -> None:
    first = load_or_create_key(tmp_path / "new" / "dir", rng=seeded(1))
    again = load_or_create_key(tmp_path / "new" / "dir", rng=seeded(2))
    assert first.address == again.address
    assert first.address != load_or_create_key(tmp_path / "other", rng=seeded(2)).address


def test_only_the_owner_can_read_the_key(tmp_path: Path) -> None:
    load_or_create_key(tmp_path / "data", rng=seeded(1))
    path = tmp_path / "data" / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o601])
def test_a_key_with_open_permissions_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    load_or_create_key(tmp_path, rng=seeded(1))
    (tmp_path / KEY_FILE).chmod(mode)
    with pytest.raises(StartupError, match="chmod 600"):
        load_or_create_key(tmp_path, rng=seeded(1))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"garbage", b"\xff\xfe", b"ab", b"0" * 64, b"f" * 64, b"ab" * 31, b"ab" * 33]
)
def test_a_file_that_holds_no_key_is_refused_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / KEY_FILE
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StartupError, match="holds no key"):
        load_or_create_key(tmp_path, rng=seeded(1))
    assert path.read_bytes() == content


def test_a_key_file_may_end_in_a_newline(tmp_path: Path) -> None:
    key = SigningKey.generate(rng=seeded(3))
    path = tmp_path / KEY_FILE
    path.write_text(key.secret_hex() + "\n")
    path.chmod(0o600)
    assert load_or_create_key(tmp_path, rng=seeded(1)).address == key.address


def test_a_temporary_file_of_a_crash_does_not_stop_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every start has the same process id."""

    def crash(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(StartupError, match="Input/output error"):
            load_or_create_key(tmp_path, rng=seeded(1))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f"node.{os.getpid()}.tmp").touch()
    load_or_create_key(tmp_path, rng=seeded(1))


def test_an_unusable_data_directory_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match="file"):
        load_or_create_key(tmp_path / "file", rng=seeded(1))
