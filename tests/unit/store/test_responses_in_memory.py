from __future__ import annotations

import pytest

from tests.unit.store.memory_responses import MemoryResponses
from tests.unit.store.responses_suite import ResponseSuite


class TestMemoryResponses(ResponseSuite):
    @pytest.fixture
    def store(self) -> MemoryResponses:
        return MemoryResponses()
