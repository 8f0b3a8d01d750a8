"""Values of secrets come from stdin, files or the environment, and never from the command line."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparewatt.cli.errors import CliError
from sparewatt.cli.leases.secret_values import read_values, secret_names


def test_names_are_read_from_every_form_once() -> None:
    assert secret_names(["A", "B=-", "C=@/x", "A"]) == ["A", "B", "C"]


@pytest.mark.parametrize("given", [["A=plain"], ["A="], ["=-"], ["A=-", "B=-"]])
def test_a_value_in_plain_or_two_from_stdin_are_refused_without_being_repeated(given: list[str]) -> None:
    with pytest.raises(CliError) as error:
        secret_names(given)
    assert "plain" not in error.value.message + error.value.next_step


def test_values_come_from_where_the_options_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("of the file\r\n")
    monkeypatch.setenv("A", "of the environment")
    monkeypatch.setenv("D", "also there")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"of stdin\n")))
    found = read_values(["A", "B=-", f"C=@{file}"], names=["D", "LATER"])
    assert found == {"A": "of the environment", "B": "of stdin", "C": "of the file", "D": "also there"}


@pytest.mark.parametrize("content", [b"", b"\n", b"a\0b", b"\xff\xfe", b"x" * 70_000])
def test_what_is_no_usable_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(CliError):
        read_values([f"A=@{tmp_path / 'token'}"], names=["A"])


def test_a_missing_variable_or_file_is_told_before_anything_is_ordered(tmp_path: Path) -> None:
    for given in ("SPAREWATT_NO_SUCH_SECRET", f"A=@{tmp_path / 'none'}"):
        with pytest.raises(CliError):
            read_values([given], names=[])
    assert read_values([], names=["SPAREWATT_NO_SUCH_SECRET"]) == {}
