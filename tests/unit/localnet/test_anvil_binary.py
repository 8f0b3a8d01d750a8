"""Where the local chain's program comes from, and the errors when there is none."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from importlib import resources
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.localnet.anvil_binary import PACKAGES, VERSION, find_anvil, npm_argv
from sparewatt.machine.user_cache import cache_dir


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def quiet(_: str) -> None:
    pass


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on PATH but what a test puts there, and an empty cache."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


async def test_the_users_own_program_wins(tmp_path: Path) -> None:
    own = program(tmp_path / "bin" / "anvil")
    assert await find_anvil(notify=quiet) == own


async def test_a_fetched_program_is_not_fetched_again(tmp_path: Path) -> None:
    package = PACKAGES["linux", "x86_64"]
    binary = tmp_path / "cache" / "sparewatt" / f"anvil-{VERSION}" / "node_modules" / package / "bin" / "anvil"
    binary.parent.mkdir(parents=True)
    program(binary)
    assert await find_anvil(notify=pytest.fail) == binary


async def test_without_a_pinned_package_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    with pytest.raises(StartupError, match="CHAIN_URL"):
        await find_anvil(notify=quiet)


async def test_an_npm_that_fails_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "npm", "#!/bin/sh\necho 'EINTEGRITY the hash differs' >&2; exit 1\n")
    with pytest.raises(StartupError, match="EINTEGRITY"):
        await find_anvil(notify=quiet)
    assert list((tmp_path / "cache" / "sparewatt").iterdir()) == []


async def test_a_package_without_the_program_is_refused(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "npm")
    with pytest.raises(StartupError, match="holds no anvil"):
        await find_anvil(notify=quiet)


def test_without_npm_on_the_path_the_wheels_is_taken(tmp_path: Path) -> None:
    node, script = npm_argv()
    assert Path(node).is_file()
    assert Path(script).is_file()
    own = program(tmp_path / "bin" / "npm")
    assert npm_argv() == (str(own),)


def test_every_package_is_pinned_by_version_and_hash_and_no_address() -> None:
    text = resources.files("sparewatt.localnet").joinpath("anvil_package", "package-lock.json").read_text()
    locked = json.loads(text)["packages"]
    for package in PACKAGES.values():
        entry = locked[f"node_modules/{package}"]
        assert entry["version"] == VERSION
        assert entry["integrity"].startswith("sha512-")
    assert "resolved" not in text
    assert "http" not in text


def test_the_cache_is_the_users(tmp_path: Path) -> None:
    assert cache_dir({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "sparewatt"
    assert cache_dir({}) == Path.home() / ".cache" / "sparewatt"
    assert shutil.which("anvil") is None
