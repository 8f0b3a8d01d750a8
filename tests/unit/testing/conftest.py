from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.testing.client import Client, engine_client


@pytest.fixture
async def engine() -> AsyncIterator[Client]:
    async with engine_client() as client:
        yield client
