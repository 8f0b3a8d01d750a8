from __future__ import annotations

import pytest

from tests.unit.store.documents_suite import DocumentSuite
from tests.unit.store.memory_documents import MemoryDocuments


class TestMemoryDocuments(DocumentSuite):
    @pytest.fixture
    def store(self) -> MemoryDocuments:
        return MemoryDocuments()
