"""The shipped migrations: numbered without gaps, and compared with the history of a database."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.store.migrations import _check_history, shipped_migrations


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
