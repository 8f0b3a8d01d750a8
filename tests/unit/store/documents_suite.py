"""The contract suite of a document store. Subclasses provide the store and the keys."""

from __future__ import annotations

import datetime as dt

from sparewatt.store.documents import DocumentStore
from tests.unit.store.responses_suite import KEY, OTHER


def later(seconds: float = 3600) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)


async def put(store: DocumentStore, *names: str, folder: str = "conv_a", seconds: float = 3600) -> bool:
    rows = [(name, b"sealed " + name.encode()) for name in names]
    return await store.insert(rows, key_id=KEY, folder=folder, expires_at=later(seconds))


class DocumentSuite:
    async def test_a_document_is_found_by_its_key_and_folder(self, store: DocumentStore) -> None:
        assert await put(store, "msg_1")
        found = await store.find("msg_1", key_id=KEY, folder="conv_a")
        assert found is not None
        assert found.sealed == b"sealed msg_1"
        assert await store.find("msg_1", key_id=OTHER, folder="conv_a") is None
        assert await store.find("msg_1", key_id=KEY, folder="conv_b") is None

    async def test_documents_keep_their_order_and_come_in_pages(self, store: DocumentStore) -> None:
        await put(store, "msg_2", "msg_1")
        await put(store, "msg_3")
        await put(store, "msg_9", folder="conv_b")

        async def names(order: str, limit: int, after: int | None = None) -> list[str]:
            found = await store.page(key_id=KEY, folder="conv_a", order=order, limit=limit, after=after)  # type: ignore[arg-type]
            return [row.id for row in found]

        assert await names("asc", 9) == ["msg_2", "msg_1", "msg_3"]
        assert await names("desc", 2) == ["msg_3", "msg_1"]
        second = await store.find("msg_1", key_id=KEY, folder="conv_a")
        assert second is not None
        assert await names("asc", 9, second.number) == ["msg_3"]
        assert await names("desc", 9, second.number) == ["msg_2"]

    async def test_one_that_is_put_again_keeps_its_place(self, store: DocumentStore) -> None:
        await put(store, "msg_1", "msg_2")
        assert await store.insert([("msg_1", b"new")], key_id=KEY, folder="conv_a", expires_at=later())
        found = await store.page(key_id=KEY, folder="conv_a", order="asc", limit=9)
        assert [(row.id, row.sealed) for row in found] == [("msg_1", b"new"), ("msg_2", b"sealed msg_2")]

    async def test_a_key_stores_a_bounded_number_and_size(self, store: DocumentStore) -> None:
        async def insert(*names: str, count: int = 99, size: int = 999) -> bool:
            rows = [(name, b"12345") for name in names]
            limits = {"count_max": count, "bytes_max": size}
            return await store.insert(rows, key_id=KEY, folder="conv_a", expires_at=later(), **limits)

        assert not await insert("msg_1", "msg_2", count=1)
        assert await insert("msg_1", "msg_2", count=2, size=10)
        assert not await insert("msg_3", size=14)
        assert await insert("msg_3", size=15)

    async def test_what_has_expired_is_not_found_and_then_removed(self, store: DocumentStore) -> None:
        await put(store, "msg_1", seconds=-1)
        assert await store.find("msg_1", key_id=KEY, folder="conv_a") is None
        assert await store.page(key_id=KEY, folder="conv_a", order="asc", limit=9) == []
        assert not await store.replace("msg_1", b"x", key_id=KEY, folder="conv_a")
        assert not await store.delete("msg_1", key_id=KEY, folder="conv_a")
        await store.forget_old()

    async def test_a_document_is_replaced_and_deleted(self, store: DocumentStore) -> None:
        await put(store, "msg_1", "msg_2")
        assert await store.replace("msg_1", b"new", key_id=KEY, folder="conv_a")
        assert not await store.replace("msg_1", b"new", key_id=OTHER, folder="conv_a")
        assert not await store.delete("msg_1", key_id=OTHER, folder="conv_a")
        assert await store.delete("msg_1", key_id=KEY, folder="conv_a")
        await store.delete_folder(key_id=OTHER, folder="conv_a")
        assert await store.find("msg_2", key_id=KEY, folder="conv_a") is not None
        await store.delete_folder(key_id=KEY, folder="conv_a")
        assert await store.find("msg_2", key_id=KEY, folder="conv_a") is None
