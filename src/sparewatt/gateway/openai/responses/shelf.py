"""Where the holder of an API key keeps responses: Postgres has them sealed, and this key alone opens them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime as dt
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from sparewatt.accounts.keys import presented_secret
from sparewatt.accounts.principal import Principal
from sparewatt.accounts.sealing import Sealer
from sparewatt.core.errors import (
    Internal,
    InvalidField,
    PreviousResponseGone,
    ResponseNotFound,
    StorageFull,
    UnsupportedParameter,
)
from sparewatt.core.ids import KeyId
from sparewatt.core.limits import MIB, RESPONSES_STORED_BYTES_PER_KEY_MAX, RESPONSES_STORED_PER_KEY_MAX
from sparewatt.core.rng import Rng
from sparewatt.gateway.services import services_of
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.resource import failed
from sparewatt.store.responses import ResponseStore, SealedResponse

_T = TypeVar("_T")
_AT_ONCE_BYTES = MIB // 4
"""What is sealed or opened without letting others wait: about a millisecond."""

_COMPACTION = "compaction"
_KEPT = "Responses are kept for 24 h, and only where the request said 'store': true."


class Kept(NamedTuple):
    """`response` as it stands, `items` that were its input."""

    response: Json
    items: list[Json]
    is_over: bool


class Shelf:
    """Of one key."""

    def __init__(self, key_id: KeyId, secret: str, *, store: ResponseStore, rng: Rng) -> None:
        self.key_id = key_id
        self._secret = secret
        self._store = store
        self._rng = rng

    @cached_property
    def _sealer(self) -> Sealer:
        """Made when it is needed: most requests store nothing, and deriving a key takes a tenth of a millisecond."""
        return Sealer(self._secret.encode(errors="surrogatepass"), purpose=b"sparewatt responses", rng=self._rng)

    async def put(self, response: Json, items: list[Json]) -> dt.datetime:
        """Until when it is kept. Raises StorageFull."""
        sealed = await self._seal({"response": response, "items": items}, f"{response['id']}/input")
        expires_at = await self._store.insert(
            response["id"], key_id=self.key_id, previous_id=response["previous_response_id"], sealed=sealed
        )
        if expires_at is None:
            raise StorageFull(
                f"This key keeps as much as it may: {RESPONSES_STORED_PER_KEY_MAX:,} responses or "
                f"{RESPONSES_STORED_BYTES_PER_KEY_MAX // MIB} MiB within 24 h. Delete some, or leave out 'store'.",
                param="store",
            )
        return expires_at

    async def finish(self, response: Json) -> bool:
        """Keep what came of it. False if it was deleted meanwhile."""
        sealed = await self._seal(response, f"{response['id']}/output")
        return await self._store.finish(response["id"], status=response["status"], sealed=sealed)

    async def find(self, response_id: str) -> Kept:
        """Raises ResponseNotFound, also for one of another key."""
        row = await self._store.find(response_id, key_id=self.key_id)
        if row is None:
            raise not_found(response_id)
        return await self._open(row)

    async def history(self, response_id: str) -> list[Json]:
        """All items up to and with a response, the oldest first. Raises PreviousResponseGone or InvalidField."""
        chain = await self._store.chain(response_id, key_id=self.key_id)
        if not chain:
            raise gone(response_id)
        if chain[-1].previous_id is not None:
            raise gone(chain[-1].previous_id)
        items: list[Json] = []
        for row in reversed(chain):
            if row.status not in ("completed", "incomplete", "cancelled"):
                raise InvalidField(
                    f"The response {row.id} is {row.status.replace('_', ' ')}: there is nothing to go on from.",
                    param="previous_response_id",
                )
            kept = await self._open(row)
            items += [*kept.items, *kept.response["output"]]
        return items

    async def delete(self, response_id: str) -> bool:
        return await self._store.delete(response_id, key_id=self.key_id)

    async def forget(self, response_id: str) -> None:
        """Nothing came of it."""
        await self.delete(response_id)

    async def ask_to_cancel(self, response_id: str) -> None:
        await self._store.ask_to_cancel(response_id, key_id=self.key_id)

    def seal_items(self, items: list[Json]) -> str:
        """A conversation in short, for the client to keep and send back."""
        sealed = self._sealer.seal(msgspec.json.encode(items), bound_to=_COMPACTION)
        return base64.urlsafe_b64encode(sealed).decode()

    def open_items(self, sealed: str) -> list[Json]:
        """Raises InvalidField if this key did not make it."""
        try:
            plain = self._sealer.open(base64.urlsafe_b64decode(sealed), bound_to=_COMPACTION)
            items: list[Json] = msgspec.json.decode(plain)
        except (ValueError, binascii.Error):
            raise InvalidField(
                "This compaction was not made here with this API key, and cannot be opened.", param="input"
            ) from None
        return items

    async def _open(self, row: SealedResponse) -> Kept:
        asked = await self._unseal(row.input, f"{row.id}/input")
        if row.output is not None:
            return Kept(await self._unseal(row.output, f"{row.id}/output"), asked["items"], is_over=True)
        response: Json = asked["response"]
        if row.abandoned:
            response = failed(response, Internal("The gateway that wrote this answer was lost."))
        return Kept(response, asked["items"], is_over=row.abandoned)

    async def _seal(self, value: Json, bound_to: str) -> bytes:
        plain = msgspec.json.encode(value)
        return await _beside(len(plain), lambda: self._sealer.seal(plain, bound_to=bound_to))

    async def _unseal(self, sealed: bytes, bound_to: str) -> Json:
        plain = await _beside(len(sealed), lambda: self._sealer.open(sealed, bound_to=bound_to))
        value: dict[str, Any] = msgspec.json.decode(plain)
        return value


async def _beside(n_bytes: int, work: Callable[[], _T]) -> _T:
    return work() if n_bytes <= _AT_ONCE_BYTES else await asyncio.to_thread(work)


def shelf_of(request: web.Request, who: Principal) -> Shelf | None:
    """None for a browser's session: there is no API key to seal anything under."""
    services, authorization = services_of(request), request.headers.get("authorization")
    if who.key is None or authorization is None:
        return None
    return Shelf(who.key.id, presented_secret(authorization), store=services.database.responses, rng=services.rng)


def needed(shelf: Shelf | None, *, param: str) -> Shelf:
    """Raises UnsupportedParameter."""
    if shelf is None:
        raise UnsupportedParameter(
            "What is stored is sealed under an API key, and a browser's session has none. Send the request with a key.",
            param=param,
        )
    return shelf


def not_found(response_id: str) -> ResponseNotFound:
    return ResponseNotFound(f"There is no response {response_id[:80]!r} of this key. {_KEPT}")


def gone(response_id: str) -> PreviousResponseGone:
    return PreviousResponseGone(
        f"There is no response {response_id[:80]!r} of this key to go on from. {_KEPT} "
        "Without it, send the whole conversation as 'input'.",
        param="previous_response_id",
    )
