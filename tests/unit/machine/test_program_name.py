"""Lines to copy call the program as the user does."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.machine.program_name import program_name


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    program = tmp_path / "env" / "bin" / "sparewatt"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_on_path_the_bare_name_is_enough(installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(installed.parent))
    assert program_name(str(installed), cwd=tmp_path) == "sparewatt"


def test_another_program_of_that_name_on_path_is_not_meant(
    installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "sparewatt"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert program_name(str(installed), cwd=tmp_path) == "env/bin/sparewatt"


def test_elsewhere_it_is_the_whole_path(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert program_name(str(installed), cwd=Path("/nowhere")) == str(installed)
