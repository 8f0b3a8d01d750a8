"""The named statements of the SQL files: each is used, and each has one name. Integration tests run them."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable

import pytest

from sparewatt.store import connection_pool
from sparewatt.store.connection_pool import sql


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
