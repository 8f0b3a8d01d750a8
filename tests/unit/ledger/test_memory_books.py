"""Books in memory keep what the suite asks for, so that what is tried on them holds in Postgres."""

from __future__ import annotations

import pytest

from tests.unit.ledger.books_suite import BooksSuite
from tests.unit.ledger.memory_books import MemoryBooks


class TestMemoryBooks(BooksSuite):
    @pytest.fixture
    def books(self) -> MemoryBooks:
        return MemoryBooks()
