"""A step that failed is undone, however it ended."""

from __future__ import annotations

import asyncio

import pytest

from sparewatt.core.cleanup import on_failure


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
def test_a_block_that_raises_is_undone_once_and_its_error_passes_on(kind: type[BaseException]) -> None:
    undone: list[int] = []
    with pytest.raises(kind), on_failure(undone.append, 1):
        raise kind
    assert undone == [1]


def test_a_block_that_ends_well_is_not_undone() -> None:
    undone: list[int] = []
    with on_failure(undone.append, 1):
        pass
    assert undone == []
