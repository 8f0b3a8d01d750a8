"""Stored responses of one API key. Postgres has them sealed, and only the secret of that key opens them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime as dt
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec

from sparewatt.accounts.keys import bearer_secret
from sparewatt.accounts.principal import Principal
from sparewatt.accounts.sealer import Sealer
from sparewatt.core.errors import (
    InternalError,
    InvalidField,
    PreviousResponseNotFound,
    ResponseNotFound,
    StorageFull,
    UnsupportedParameter,
)
from sparewatt.core.ids import KeyId
from sparewatt.core.limits import MIB, RESPONSES_STORED_BYTES_PER_KEY_MAX, RESPONSES_STORED_PER_KEY_MAX
from sparewatt.core.rng import Rng
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.response_object import failed
from sparewatt.store.responses import ResponseStore, SealedResponse

_T = TypeVar("_T")
_AT_ONCE_BYTES = MIB // 4
"""So much is sealed or opened on the event loop, which takes about a millisecond; more in a thread."""

_COMPACTION = "compaction"
_RETENTION = "Responses are kept for 24 h, and only where the request said 'store': true."


class StoredResponse(NamedTuple):
    response: Json
    """Its current state."""
    items: list[Json]
    """Its input."""
    is_over: bool


class Shelf:
    """What one API key stores."""

    def __init__(self, key_id: KeyId, secret: str, *, store: ResponseStore, rng: Rng) -> None:
        self.key_id = key_id
        self._secret = secret
        self._store = store
        self._rng = rng

    @cached_property
    def _sealer(self) -> Sealer:
        """Made on first use: most requests store nothing, and deriving a key takes a tenth of a millisecond."""
        return Sealer(self._secret.encode(errors="surrogatepass"), purpose=b"sparewatt responses", rng=self._rng)

    async def put(self, response: Json, items: list[Json]) -> dt.datetime:
        """Store a response that begins. Returns until when it is kept. Raises StorageFull."""
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
        """Store a response that is over. False if it was deleted meanwhile."""
        sealed = await self._seal(response, f"{response['id']}/output")
        return await self._store.finish(response["id"], status=response["status"], sealed=sealed)

    async def find(self, response_id: str) -> StoredResponse:
        """Raises ResponseNotFound, also for one of another key."""
        row = await self._store.find(response_id, key_id=self.key_id)
        if row is None:
            raise response_not_found(response_id)
        return await self._open(row)

    async def history(self, response_id: str) -> list[Json]:
        """All items up to and with a response, the oldest first. Raises PreviousResponseNotFound or InvalidField."""
        chain = await self._store.find_with_ancestors(response_id, key_id=self.key_id)
        if not chain:
            raise previous_response_gone(response_id)
        if chain[-1].previous_id is not None:
            raise previous_response_gone(chain[-1].previous_id)
        items: list[Json] = []
        for row in reversed(chain):
            if row.status not in ("completed", "incomplete", "cancelled"):
                raise InvalidField(
                    f"The response {row.id} is {row.status.replace('_', ' ')}: there is nothing to go on from.",
                    param="previous_response_id",
                )
            stored = await self._open(row)
            items += [*stored.items, *stored.response["output"]]
        return items

    async def delete(self, response_id: str) -> bool:
        """False if it is not there."""
        return await self._store.delete(response_id, key_id=self.key_id)

    async def ask_to_cancel(self, response_id: str) -> None:
        """Leave a note for the gateway that writes it."""
        await self._store.request_cancel(response_id, key_id=self.key_id)

    def seal_items(self, items: list[Json]) -> str:
        """Items that the client keeps, and sends back as one compaction."""
        sealed = self._sealer.seal(msgspec.json.encode(items), bound_to=_COMPACTION)
        return base64.urlsafe_b64encode(sealed).decode()

    def open_items(self, sealed: str) -> list[Json]:
        """Raises InvalidField if this key did not seal it."""
        try:
            plain = self._sealer.open(base64.urlsafe_b64decode(sealed), bound_to=_COMPACTION)
            items: list[Json] = msgspec.json.decode(plain)
        except (ValueError, binascii.Error):
            raise InvalidField(
                "This compaction was not made here with this API key, and cannot be opened.", param="input"
            ) from None
        return items

    async def _open(self, row: SealedResponse) -> StoredResponse:
        stored_input = await self._unseal(row.input, f"{row.id}/input")
        items: list[Json] = stored_input["items"]
        if row.output is not None:
            return StoredResponse(await self._unseal(row.output, f"{row.id}/output"), items, is_over=True)
        response: Json = stored_input["response"]
        if row.abandoned:
            response = failed(response, InternalError("The gateway that wrote this answer was lost."))
        return StoredResponse(response, items, is_over=row.abandoned)

    async def _seal(self, value: Json, bound_to: str) -> bytes:
        plain = msgspec.json.encode(value)
        return await _run(len(plain), lambda: self._sealer.seal(plain, bound_to=bound_to))

    async def _unseal(self, sealed: bytes, bound_to: str) -> Json:
        plain = await _run(len(sealed), lambda: self._sealer.open(sealed, bound_to=bound_to))
        value: dict[str, Any] = msgspec.json.decode(plain)
        return value


class ShelfFactory:
    def __init__(self, *, store: ResponseStore, rng: Rng) -> None:
        self._store = store
        self._rng = rng

    def shelf_for(self, principal: Principal, authorization: str | None) -> Shelf | None:
        """None for a browser's session, which has no API key to seal anything under.

        `authorization`: the header by which the principal was authenticated.
        """
        if principal.key is None or authorization is None:
            return None
        return Shelf(principal.key.id, bearer_secret(authorization), store=self._store, rng=self._rng)


async def _run(n_bytes: int, work: Callable[[], _T]) -> _T:
    """Here if it is short, else in a thread."""
    return work() if n_bytes <= _AT_ONCE_BYTES else await asyncio.to_thread(work)


def require_shelf(shelf: Shelf | None, *, param: str) -> Shelf:
    """Raises UnsupportedParameter."""
    if shelf is None:
        raise UnsupportedParameter(
            "What is stored is sealed under an API key, and a browser's session has none. Send the request with a key.",
            param=param,
        )
    return shelf


def response_not_found(response_id: str) -> ResponseNotFound:
    return ResponseNotFound(f"There is no response {response_id[:80]!r} of this key. {_RETENTION}")


def previous_response_gone(response_id: str) -> PreviousResponseNotFound:
    return PreviousResponseNotFound(
        f"There is no response {response_id[:80]!r} of this key to go on from. {_RETENTION} "
        "Without it, send the whole conversation as 'input'.",
        param="previous_response_id",
    )
