"""Pages: the first items behind a cursor, and other requests answered while a long list is read."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from aiohttp.test_utils import make_mocked_request

from sparewatt.api.paging import (
    PAGE_MAX,
    STEPS_PER_TICK,
    PageSelection,
    read_cursor,
    read_limit,
    take_turns,
    write_cursor,
)
from sparewatt.core.errors import InvalidField
from sparewatt.inference.matcher.formula import hash_text


class Key(NamedTuple):
    length: int
    text: str


def pages_of(items: list[str], *, limit: int) -> list[list[str]]:
    pages: list[list[str]] = []
    after: Key | None = None
    while True:
        selection: PageSelection[Key, str] = PageSelection(after=after, limit=limit)
        for item in items:
            selection.add(Key(len(item), item), item)
        found = selection.items()
        pages.append([item for _, item in found[:limit]])
        if len(found) <= limit:
            return pages
        after = found[limit - 1][0]


@pytest.mark.parametrize("limit", [1, 3, 7, 99, 100, 101])
def test_all_pages_together_are_the_list_in_order(limit: int) -> None:
    items = [str(number) for number in range(100)]
    items.sort(key=lambda item: hash_text(f"{limit}{item}"))
    pages = pages_of(items, limit=limit)
    assert [item for page in pages for item in page] == [str(number) for number in range(100)]
    assert all(0 < len(page) <= limit for page in pages)


def test_an_empty_list_is_one_empty_page() -> None:
    assert pages_of([], limit=5) == [[]]


def test_a_selection_of_a_long_list_holds_a_few_pages_at_most() -> None:
    selection: PageSelection[Key, int] = PageSelection(after=None, limit=10)
    for number in range(10_000):
        selection.add(Key(-number, ""), number)
        assert len(selection._found) <= 44
    assert [item for _, item in selection.items()][:3] == [9_999, 9_998, 9_997]


def test_a_cursor_is_read_as_it_was_written() -> None:
    cursor = write_cursor((3, "ü/ö"))
    assert read_cursor(make_mocked_request("GET", f"/?after={cursor}"), Key) == (3, "ü/ö")
    assert read_cursor(make_mocked_request("GET", "/"), Key) is None


@pytest.mark.parametrize(
    "after", ["", "x", "%00", "ü", write_cursor(("a", 1)), write_cursor((1, "a", 2)), "A" * 10_000]
)
def test_a_cursor_that_is_not_ours_is_refused(after: str) -> None:
    with pytest.raises(InvalidField, match="after"):
        read_cursor(make_mocked_request("GET", f"/?after={after}"), Key)


@pytest.mark.parametrize(("query", "limit"), [("", PAGE_MAX), ("?limit=1", 1), (f"?limit={PAGE_MAX}", PAGE_MAX)])
def test_a_limit_is_at_most_a_page(query: str, limit: int) -> None:
    assert read_limit(make_mocked_request("GET", f"/{query}")) == limit


@pytest.mark.parametrize("limit", ["0", "-1", str(PAGE_MAX + 1), "many", ""])
def test_another_limit_is_refused(limit: str) -> None:
    with pytest.raises(InvalidField, match="limit"):
        read_limit(make_mocked_request("GET", f"/?limit={limit}"))


async def test_others_have_their_turn_while_a_long_list_is_read() -> None:
    visited = 0
    seen: list[int] = []

    def visit(_: int) -> int:
        nonlocal visited
        visited += 1
        return 1

    async def others() -> None:
        while visited < 10 * STEPS_PER_TICK:
            seen.append(visited)
            await asyncio.sleep(0)

    await asyncio.gather(take_turns(range(10 * STEPS_PER_TICK), visit), others())
    assert seen == [STEPS_PER_TICK * turn for turn in range(1, 10)]
