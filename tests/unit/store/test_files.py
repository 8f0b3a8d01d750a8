"""The SQL files that ship: named, numbered, complete. What they do is tested against Postgres elsewhere."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.store import connection_pool
from sparewatt.store.connection_pool import sql
from sparewatt.store.migrations import _check_history, shipped_migrations


def query_files() -> list[Traversable]:
    return sorted(resources.files("sparewatt.store").joinpath("queries").iterdir(), key=lambda f: f.name)


def names_in(text: str) -> list[str]:
    return re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)


@pytest.mark.parametrize("file", query_files(), ids=lambda f: f.name)
def test_a_query_file_is_a_list_of_named_statements(file: Traversable) -> None:
    text = file.read_text(encoding="utf-8")
    assert file.name.endswith(".sql")
    assert text.startswith("-- name: ")
    assert text.count("-- name:") == len(names_in(text)) > 0
    for name in names_in(text):
        statement = re.sub(r"^--.*\n?", "", sql(name), flags=re.MULTILINE).strip()
        assert re.match(r"(SELECT|WITH|INSERT|UPDATE|DELETE|LOCK)\b", statement), name
        assert ";" not in statement, f"{name} is more than one statement"


def test_no_name_is_used_twice() -> None:
    names = [name for file in query_files() for name in names_in(file.read_text(encoding="utf-8"))]
    assert len(names) == len(set(names))
    assert set(names) == set(connection_pool._statements())


def test_every_statement_is_used_and_every_name_has_one() -> None:
    files = [file for file in resources.files("sparewatt.store").iterdir() if file.name.endswith(".py")]
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    used = re.findall(r'(?:sql|_pool\.(?:rows?|value|execute|rows?_as))\((?:\s*\w+,)?\s*"(\w+)"', source)
    assert set(used) == set(connection_pool._statements())


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        sql("drop_everything")


def test_placeholders_are_numbered_without_gaps() -> None:
    for name in connection_pool._statements():
        numbers = {int(number) for number in re.findall(r"\$(\d+)", sql(name))}
        assert numbers == set(range(1, len(numbers) + 1)), name


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    numbers = [m.version for m in shipped_migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_migration_file_is_named_by_number_and_words() -> None:
    for file in resources.files("sparewatt.store").joinpath("migrations").iterdir():
        assert re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", file.name), file.name


def test_a_migrations_digest_follows_its_text() -> None:
    for migration in shipped_migrations():
        assert migration.text.strip()
        assert re.fullmatch(r"[0-9a-f]{64}", migration.sha256)


def test_a_database_with_this_programs_history_is_taken() -> None:
    _check_history({})
    _check_history({m.version: m.sha256 for m in shipped_migrations()})


def test_a_newer_database_is_refused() -> None:
    with pytest.raises(StartupError, match="newer than this program"):
        _check_history({9999: "0" * 64})


def test_a_migration_that_was_changed_is_refused() -> None:
    with pytest.raises(StartupError, match="was changed"):
        _check_history({1: "0" * 64})
