"""A finished response read again: as a stream of events, or its input items in pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.responses.events import ResponseEventWriter
from sparewatt.protocol.responses.request import Json

SortOrder = Literal["asc", "desc"]
PAGE_ITEMS, PAGE_ITEMS_MAX = 20, 100


def replay(response: Json, *, after: int = -1) -> list[Json]:
    """Its events, with larger deltas. Those up to `after` are left out, but never the last one."""
    events = list(_events(response))
    return [event for event in events[:-1] if event["sequence_number"] > after] + events[-1:]


def _events(response: Json) -> Iterator[Json]:
    events = ResponseEventWriter()
    begun = response | {"status": "in_progress", "output": [], "usage": None, "completed_at": None}
    yield events.snapshot("created", begun)
    yield events.snapshot("in_progress", begun)
    for index, item in enumerate(response["output"]):
        kind = item["type"]
        yield from events.item_added(index, item)
        text = item["arguments"] if kind == "function_call" else item["content"][0]["text"]
        if text:
            yield events.item_delta(kind, text, index=index, item_id=item["id"])
        yield from events.item_done(index, item)
    yield events.last_snapshot(response)


def page(items: Sequence[Json], *, order: SortOrder, limit: int, after: str | None) -> Json:
    """A page of items, in OpenAI's shape. Raises InvalidField if `after` is not among them."""
    ordered = list(items) if order == "asc" else list(reversed(items))
    start = 0
    if after is not None:
        indexes = [i for i, item in enumerate(ordered) if item["id"] == after]
        if not indexes:
            raise InvalidField(f"This response has no item {after[:80]!r}.", param="after")
        start = indexes[0] + 1
    data = ordered[start : start + limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": start + limit < len(ordered),
    }
