"""Stored chat completions of one API key, and the recording of one while it is answered. Each is kept for a day."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from sparewatt.accounts.principal import Principal
from sparewatt.core.errors import CompletionNotFound, StorageFull, StoreUnavailable
from sparewatt.inference.responses.document_shelf import Document, DocumentShelf, SortOrder
from sparewatt.inference.responses.retention import require_day
from sparewatt.inference.responses.shelf import ShelfFactory, require_shelf
from sparewatt.policy.model import Retention
from sparewatt.protocol.openai.stored_chat import CompletionAssembler, messages_of, metadata_of, read_whole
from sparewatt.protocol.responses.request import Json, check_metadata

FOLDER = "completions"
COMPLETIONS_SCANNED_MAX = 1_000
"""Stored completions that are opened for one page of a filtered list."""
_BATCH = 100
_ID = re.compile(r"[0-9a-zA-Z_-]{1,100}")


@dataclass(frozen=True, slots=True)
class CompletionShelf:
    """A document has the `completion`, and the `messages` that it answers."""

    documents: DocumentShelf

    async def put(self, completion: Json, messages: list[Json]) -> bool:
        """False if there is one of this id: a node chose it, and must not replace another's. Raises StorageFull."""
        completion_id = completion["id"]
        if not _ID.fullmatch(completion_id) or await self.documents.find(FOLDER, completion_id) is not None:
            return False
        document = {"id": completion_id, "completion": completion, "messages": messages}
        await self.documents.put(FOLDER, [document])
        return True

    async def find(self, completion_id: str) -> Json:
        """Its document. Raises CompletionNotFound."""
        return (await self._find(completion_id)).value

    async def set_metadata(self, completion_id: str, metadata: dict[str, str]) -> Json:
        """Returns the completion. Raises CompletionNotFound."""
        document = await self.find(completion_id)
        document["completion"] |= {"metadata": metadata}
        if not await self.documents.replace(FOLDER, document):
            raise completion_not_found(completion_id)
        completion: Json = document["completion"]
        return completion

    async def delete(self, completion_id: str) -> None:
        """Raises CompletionNotFound."""
        if not _ID.fullmatch(completion_id) or not await self.documents.delete(FOLDER, completion_id):
            raise completion_not_found(completion_id)

    async def page(
        self, *, order: SortOrder, limit: int, after: str | None, model: str | None, metadata: Mapping[str, str]
    ) -> tuple[list[Json], bool]:
        """Completions, and whether there are more. Raises CompletionNotFound if `after` is not there."""
        number = None if after is None else (await self._find(after)).number
        found: list[Json] = []
        for _ in range(COMPLETIONS_SCANNED_MAX // _BATCH):
            batch = await self.documents.page(FOLDER, order=order, limit=_BATCH, after=number)
            found += [each for one in batch if _is_wanted(each := one.value["completion"], model, metadata)]
            if len(found) > limit or len(batch) < _BATCH:
                break
            number = batch[-1].number
        return found[:limit], len(found) > limit

    async def _find(self, completion_id: str) -> Document:
        found = await self.documents.find(FOLDER, completion_id) if _ID.fullmatch(completion_id) else None
        if found is None:
            raise completion_not_found(completion_id)
        return found


def _is_wanted(completion: Json, model: str | None, metadata: Mapping[str, str]) -> bool:
    has_model = model is None or completion.get("model") == model
    return has_model and metadata.items() <= completion["metadata"].items()


def completion_not_found(completion_id: str) -> CompletionNotFound:
    return CompletionNotFound(
        f"There is no stored chat completion {completion_id[:80]!r} of this key. One is kept for 24 h, where its "
        "request said 'store': true."
    )


@dataclass(slots=True)
class CompletionRecording:
    """One answer on its way to the client."""

    shelf: CompletionShelf
    body: bytes
    """Of the request."""
    metadata: dict[str, str]
    assembler: CompletionAssembler = field(default_factory=CompletionAssembler)

    def feed(self, data: bytes) -> None:
        """The next bytes of a stream."""
        self.assembler.feed(data)

    async def store(self, whole: bytes) -> None:
        """`whole`: the reply, if it came in one piece. Without room, or without the database, nothing is stored."""
        completion = read_whole(whole) if whole else self.assembler.completion()
        if completion is not None:
            messages = messages_of(self.body, completion["id"])
            with suppress(StorageFull, StoreUnavailable):
                await self.shelf.put(completion | {"metadata": self.metadata}, messages)


@dataclass(frozen=True, slots=True)
class CompletionRecorder:
    shelves: ShelfFactory

    def begin(
        self, principal: Principal, authorization: str | None, body: bytes, *, retention: Retention
    ) -> CompletionRecording:
        """Before a chat with `store: true` is submitted. Raises UnsupportedParameter, RetentionForbidden or
        InvalidField.
        """
        shelf = require_shelf(self.shelves.shelf_for(principal, authorization), param="store")
        require_day(retention, param="store")
        metadata = metadata_of(body)
        check_metadata(metadata)
        return CompletionRecording(CompletionShelf(shelf.documents), body, metadata)
