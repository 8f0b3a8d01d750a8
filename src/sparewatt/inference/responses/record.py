"""Where one response is kept. One for a day is stored from its beginning on, one for an hour when it is over.

Only a response in the background is there from the beginning in either case: its client fetches it by its id.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass

from sparewatt.core.errors import StoreUnavailable
from sparewatt.inference.responses.retention import Lifetime
from sparewatt.inference.responses.shelf import Shelf
from sparewatt.protocol.responses.request import Json
from sparewatt.store.responses import TRANSIENT_S

TRANSIENT_WRITE_S = 2.0
"""A client that did not ask to store anything waits no longer than this for a slow database."""


@dataclass(slots=True, kw_only=True)
class ResponseRecord:
    shelf: Shelf
    lifetime: Lifetime
    items: list[Json]
    """The response's own input."""
    has_row: bool = False

    async def begin(self, response: Json, *, in_background: bool) -> dt.datetime:
        """Returns until when it is kept. Raises StorageFull or StoreUnavailable."""
        if self.lifetime == "hour" and not in_background:
            return dt.datetime.fromtimestamp(response["created_at"] + TRANSIENT_S, dt.UTC)
        self.has_row = True
        put = self.shelf.put if self.lifetime == "day" else self.shelf.put_transient
        return await put(response, self.items)

    async def finish(self, response: Json) -> bool:
        """False if it is not kept: it was deleted meanwhile, or the database is away."""
        try:
            if self.has_row:
                return await self.shelf.finish(response)
            async with asyncio.timeout(TRANSIENT_WRITE_S):
                await self.shelf.put_finished(response, self.items)
        except (StoreUnavailable, TimeoutError):
            return False
        return True

    async def discard(self, response: Json) -> None:
        """Nothing was written of it, and nobody knows of it."""
        if self.has_row:
            await self.shelf.delete(response["id"])
