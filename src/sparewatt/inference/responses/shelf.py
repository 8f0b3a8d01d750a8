"""What one API key keeps of its responses. Postgres has it sealed, and only the secret of that key opens it."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from sparewatt.accounts.keys import bearer_secret
from sparewatt.accounts.principal import Principal
from sparewatt.core.errors import (
    InternalError,
    InvalidField,
    ItemNotFound,
    PreviousResponseNotFound,
    ResponseNotFound,
    StorageFull,
    UnsupportedParameter,
)
from sparewatt.core.ids import KeyId
from sparewatt.core.limits import MIB, RESPONSES_STORED_BYTES_PER_KEY_MAX, RESPONSES_STORED_PER_KEY_MAX
from sparewatt.core.rng import Rng
from sparewatt.inference.responses.conversations import ConversationShelf
from sparewatt.inference.responses.document_shelf import DocumentShelf
from sparewatt.inference.responses.json_sealer import JsonSealer
from sparewatt.inference.responses.retention import retention_note
from sparewatt.policy.model import Retention
from sparewatt.protocol.responses.input_items import REFERENCE
from sparewatt.protocol.responses.item_ids import response_of
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.response_object import failed
from sparewatt.store.documents import DocumentStore
from sparewatt.store.responses import ANCESTORS_MAX, ResponseStore, SealedResponse

_COMPACTION = "compaction"


class StoredResponse(NamedTuple):
    response: Json
    """Its current state."""
    items: list[Json]
    """Its input."""
    is_over: bool


class Shelf:
    """What one API key keeps: for a day what it asked to store, for an hour what it needs to go on."""

    def __init__(
        self,
        key_id: KeyId,
        secret: str,
        *,
        store: ResponseStore,
        documents: DocumentStore,
        rng: Rng,
        retention: Retention = "day",
    ) -> None:
        """`retention`: the longest that the standing policies allow; errors tell it."""
        self.key_id = key_id
        self.retention: Retention = retention
        self._store = store
        self._json = JsonSealer(secret, purpose=b"sparewatt responses", rng=rng)
        sealer = JsonSealer(secret, purpose=b"sparewatt documents", rng=rng)
        self.documents = DocumentShelf(key_id, sealer, store=documents)
        self.conversations = ConversationShelf(self.documents)

    async def put(self, response: Json, items: list[Json]) -> dt.datetime:
        """Store a response that begins. Returns until when it is kept. Raises StorageFull."""
        sealed = await self._seal_input(response, items)
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

    async def put_transient(self, response: Json, items: list[Json]) -> dt.datetime:
        """Keep a response that begins, for an hour. Returns until when."""
        sealed = await self._seal_input(response, items)
        return await self._store.insert_transient(
            response["id"], key_id=self.key_id, previous_id=response["previous_response_id"], sealed=sealed
        )

    async def put_finished(self, response: Json, items: list[Json]) -> None:
        """Keep a response that is over, for an hour."""
        await self._store.insert_transient(
            response["id"],
            key_id=self.key_id,
            previous_id=response["previous_response_id"],
            sealed=await self._seal_input({"id": response["id"]}, items),
            outcome=(response["status"], await self._seal_output(response)),
        )

    async def finish(self, response: Json) -> bool:
        """Store a response that is over. False if it was deleted meanwhile."""
        sealed = await self._seal_output(response)
        return await self._store.finish(response["id"], status=response["status"], sealed=sealed)

    async def find(self, response_id: str) -> StoredResponse:
        """Raises ResponseNotFound, also for one of another key."""
        row = await self._store.find(response_id, key_id=self.key_id)
        if row is None:
            raise response_not_found(response_id, self.retention)
        return await self._open(row)

    async def items_by_id(self, item_ids: Iterable[str]) -> dict[str, Json]:
        """Items of responses that are over, input and output. Raises ItemNotFound if one is missing."""
        missing = dict.fromkeys(item_ids)
        responses = {owner for item_id in missing if (owner := response_of(item_id)) is not None}
        if len(responses) > ANCESTORS_MAX:
            raise InvalidField(f"The items of at most {ANCESTORS_MAX:,} responses can be referred to.", param="input")
        found: dict[str, Json] = {}
        for row in await self._store.find_all(sorted(responses), key_id=self.key_id) if responses else ():
            stored = await self._open(row)
            items = [*stored.items, *stored.response["output"]]
            found |= {item["id"]: item for item in items if item["id"] in missing and item["type"] != REFERENCE}
        for item_id in missing:
            if item_id not in found:
                raise item_not_found(item_id, self.retention)
        return found

    async def history(self, response_id: str) -> list[Json]:
        """All items up to and with a response, the oldest first; references among them are not resolved.

        Raises PreviousResponseNotFound or InvalidField.
        """
        chain = await self._store.find_with_ancestors(response_id, key_id=self.key_id)
        if not chain:
            raise previous_response_gone(response_id, self.retention)
        if chain[-1].previous_id is not None:
            raise previous_response_gone(chain[-1].previous_id, self.retention)
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
        sealed = self._json.sealer.seal(msgspec.json.encode(items), bound_to=_COMPACTION)
        return base64.urlsafe_b64encode(sealed).decode()

    def open_items(self, sealed: str) -> list[Json]:
        """Raises InvalidField if this key did not seal it."""
        try:
            plain = self._json.sealer.open(base64.urlsafe_b64decode(sealed), bound_to=_COMPACTION)
            items: list[Json] = msgspec.json.decode(plain)
        except (ValueError, binascii.Error):
            raise InvalidField(
                "This compaction was not made here with this API key, and cannot be opened.", param="input"
            ) from None
        return items

    async def _open(self, row: SealedResponse) -> StoredResponse:
        stored_input = await self._json.open(row.input, bound_to=f"{row.id}/input")
        items: list[Json] = stored_input["items"]
        if row.output is not None:
            response: Json = await self._json.open(row.output, bound_to=f"{row.id}/output")
            return StoredResponse(response, items, is_over=True)
        response = stored_input["response"]
        if row.abandoned:
            response = failed(response, InternalError("The gateway that wrote this answer was lost."))
        return StoredResponse(response, items, is_over=row.abandoned)

    async def _seal_input(self, response: Json, items: list[Json]) -> bytes:
        return await self._json.seal({"response": response, "items": items}, bound_to=f"{response['id']}/input")

    async def _seal_output(self, response: Json) -> bytes:
        return await self._json.seal(response, bound_to=f"{response['id']}/output")


class ShelfFactory:
    def __init__(
        self,
        *,
        store: ResponseStore,
        documents: DocumentStore,
        rng: Rng,
        retention_of: Callable[[Principal], Retention],
    ) -> None:
        """`retention_of`: the longest that the policies of network, account and key let anything be kept."""
        self._store = store
        self._documents = documents
        self._rng = rng
        self._retention_of = retention_of

    def shelf_for(self, principal: Principal, authorization: str | None) -> Shelf | None:
        """None for a browser's session, which has no API key to seal anything under.

        `authorization`: the header by which the principal was authenticated.
        """
        if principal.key is None or authorization is None:
            return None
        return Shelf(
            principal.key.id,
            bearer_secret(authorization),
            store=self._store,
            documents=self._documents,
            rng=self._rng,
            retention=self._retention_of(principal),
        )


def require_shelf(shelf: Shelf | None, *, param: str | None) -> Shelf:
    """Raises UnsupportedParameter."""
    if shelf is None:
        raise UnsupportedParameter(
            "What is stored is sealed under an API key, and a browser's session has none. Send the request with a key.",
            param=param,
        )
    return shelf


def response_not_found(response_id: str, retention: Retention = "day") -> ResponseNotFound:
    return ResponseNotFound(f"There is no response {response_id[:80]!r} of this key. {retention_note(retention)}")


def item_not_found(item_id: str, retention: Retention = "day") -> ItemNotFound:
    return ItemNotFound(
        f"There is no item {item_id[:80]!r} of this key. {retention_note(retention)} Send the item itself instead.",
        param="input",
    )


def previous_response_gone(response_id: str, retention: Retention = "day") -> PreviousResponseNotFound:
    return PreviousResponseNotFound(
        f"There is no response {response_id[:80]!r} of this key to go on from. {retention_note(retention)} "
        "Without it, send the whole conversation as 'input'.",
        param="previous_response_id",
    )
