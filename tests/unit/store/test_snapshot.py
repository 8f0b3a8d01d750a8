"""The order in which tables are restored, and what a tampered backup cannot do."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.store.snapshot import SnapshotTable, _bound, _known_migrations, _quoted, in_dependency_order

TABLES = [SnapshotTable(name, []) for name in ("attempts", "keys", "accounts", "tokens")]


def test_a_table_comes_after_those_that_it_refers_to() -> None:
    needs = [("attempts", "keys"), ("keys", "accounts"), ("tokens", "keys"), ("tokens", "elsewhere")]
    found = [table.name for table in in_dependency_order(TABLES, needs)]
    assert all(found.index(name) > found.index(need) for name, need in needs if need in found)
    assert sorted(found) == sorted(table.name for table in TABLES)


def test_a_ring_is_refused() -> None:
    with pytest.raises(StartupError, match="ring"):
        in_dependency_order(TABLES, [("keys", "tokens"), ("tokens", "keys")])


def test_a_backup_of_another_schema_is_refused() -> None:
    with pytest.raises(StartupError, match="newer release"):
        _known_migrations({9999: "x"})
    with pytest.raises(StartupError, match="not the one of this release"):
        _known_migrations({1: "x"})


@pytest.mark.parametrize("text", ["DEFAULT", "FOR VALUES FROM (1) TO (2); DROP TABLE x", ""])
def test_a_partition_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(StartupError):
        _bound(text)


def test_names_are_quoted() -> None:
    assert _quoted('a"b') == '"a""b"'
