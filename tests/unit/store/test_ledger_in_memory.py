"""The in-memory ledger store passes the same contract suite as the one in Postgres."""

from __future__ import annotations

import pytest

from tests.unit.ledger.books_suite import BooksSuite
from tests.unit.ledger.memory_books import MemoryBooks


class TestMemoryBooks(BooksSuite):
    @pytest.fixture
    def books(self) -> MemoryBooks:
        return MemoryBooks()
