"""What the errors of a database that cannot work become: it is away, or its disk is full."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from sparewatt.core.errors import DiskFull, StoreUnavailable
from sparewatt.store.connection_pool import ConnectionPool


class FailingPool:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def execute(self, *_: object) -> None:
        raise self.error


def pool_with(error: Exception, *, is_disk_low: bool = False) -> ConnectionPool:
    failing: Any = FailingPool(error)
    return ConnectionPool(failing, lambda: is_disk_low)


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), TimeoutError(), asyncpg.CannotConnectNowError("starting up")]
)
async def test_a_database_that_does_not_answer_is_away(error: Exception) -> None:
    pool = pool_with(error)
    with pytest.raises(StoreUnavailable, match="away") as caught:
        await pool.execute("ping")
    assert (caught.value.code, caught.value.status) == ("store_unavailable", 503)
    assert not pool.take_disk_full()


async def test_a_database_that_says_that_its_disk_is_full_is_believed_once() -> None:
    pool = pool_with(asyncpg.DiskFullError("could not extend file"))
    with pytest.raises(DiskFull, match="disk of the network's database is full") as caught:
        await pool.execute("ping")
    assert "still work" not in caught.value.message
    assert caught.value.code == "disk_full"
    assert [pool.take_disk_full(), pool.take_disk_full()] == [True, False]


async def test_a_database_that_stopped_for_want_of_room_is_a_full_disk() -> None:
    pool = pool_with(ConnectionRefusedError(), is_disk_low=True)
    with pytest.raises(DiskFull):
        await pool.execute("ping")
    assert not pool.take_disk_full()


async def test_another_error_passes_as_it_is() -> None:
    pool = pool_with(asyncpg.UndefinedTableError("a mistake of ours"), is_disk_low=True)
    with pytest.raises(asyncpg.UndefinedTableError):
        await pool.execute("ping")
