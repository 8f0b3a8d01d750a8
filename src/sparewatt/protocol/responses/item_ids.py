"""Ids of items. Each contains the id of its response, by which a reference to it is looked up without an index."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from sparewatt.protocol.responses.input_items import ITEM_PREFIXES, NewId
from sparewatt.protocol.responses.request import Json

_RESPONSE = "resp_"
_ITEM_ID = re.compile(r"[a-z]{1,8}_([0-9a-z]{1,60})_[0-9]{1,6}")


def item_ids(response_id: str) -> NewId:
    """Makes the ids of one response's items, of its input as of its output."""
    numbers, body = itertools.count(), response_id.removeprefix(_RESPONSE)
    return lambda prefix: f"{prefix}_{body}_{next(numbers)}"


def response_of(item_id: str) -> str | None:
    """The response that an item belongs to; None if the id was not made here."""
    found = _ITEM_ID.fullmatch(item_id)
    return f"{_RESPONSE}{found[1]}" if found is not None else None


def with_own_ids(items: Sequence[Json], *, new_id: NewId) -> list[Json]:
    """The same items; an id that a client made up is replaced, since it may say anything."""
    return [
        item if response_of(item["id"]) is not None else item | {"id": new_id(ITEM_PREFIXES[item["type"]])}
        for item in items
    ]
