"""The contract suite of a response store. Subclasses provide the store and the keys."""

from __future__ import annotations

from typing import Any, ClassVar

from sparewatt.core.ids import KeyId
from sparewatt.store.responses import ResponseStore

KEY, OTHER = KeyId("key_a"), KeyId("key_b")


async def put(store: ResponseStore, name: str, *, key: KeyId = KEY, previous: str | None = None) -> bool:
    return await store.insert(name, key_id=key, previous_id=previous, sealed=b"in " + name.encode()) is not None


async def finish(store: ResponseStore, name: str, *, status: str = "completed") -> bool:
    return await store.finish(name, status=status, sealed=b"out " + name.encode())


async def keep(store: ResponseStore, name: str, *, key: KeyId = KEY, **more: Any) -> None:
    """For an hour, as one that is over."""
    outcome = ("completed", b"out " + name.encode())
    sealed = b"in " + name.encode()
    await store.insert_transient(name, key_id=key, sealed=sealed, outcome=outcome, **{"previous_id": None} | more)


class ResponseSuite:
    bytes_of_one: ClassVar[int] = len(b"in resp_1")

    async def test_a_response_is_found_by_its_key_alone(self, store: ResponseStore) -> None:
        assert await put(store, "resp_1")
        found = await store.find("resp_1", key_id=KEY)
        assert found is not None
        assert (found.status, found.input, found.output, found.abandoned) == ("in_progress", b"in resp_1", None, False)
        assert await store.find("resp_1", key_id=OTHER) is None
        assert await store.find("resp_2", key_id=KEY) is None

    async def test_a_response_is_finished_once(self, store: ResponseStore) -> None:
        await put(store, "resp_1")
        assert await finish(store, "resp_1", status="incomplete")
        assert not await finish(store, "resp_1")
        found = await store.find("resp_1", key_id=KEY)
        assert found is not None
        assert (found.status, found.output) == ("incomplete", b"out resp_1")

    async def test_a_deleted_response_stays_deleted(self, store: ResponseStore) -> None:
        await put(store, "resp_1")
        assert not await store.delete("resp_1", key_id=OTHER)
        assert await store.delete("resp_1", key_id=KEY)
        assert not await store.delete("resp_1", key_id=KEY)
        assert not await finish(store, "resp_1")
        assert await store.find("resp_1", key_id=KEY) is None

    async def test_ancestors_are_found_as_far_as_they_are_stored(self, store: ResponseStore) -> None:
        for name, previous in (("resp_1", None), ("resp_2", "resp_1"), ("resp_3", "resp_2")):
            await put(store, name, previous=previous)
            await finish(store, name)
        assert [row.id for row in await store.find_with_ancestors("resp_3", key_id=KEY)] == [
            "resp_3",
            "resp_2",
            "resp_1",
        ]
        assert await store.find_with_ancestors("resp_3", key_id=OTHER) == []
        await store.delete("resp_2", key_id=KEY)
        assert [row.id for row in await store.find_with_ancestors("resp_3", key_id=KEY)] == ["resp_3"]

    async def test_a_key_stores_a_bounded_number_and_size(self, store: ResponseStore) -> None:
        async def insert(name: str, *, key: KeyId = KEY, count: int = 9, size: int = 1_000) -> bool:
            sealed, limits = b"in " + name.encode(), {"count_max": count, "bytes_max": size}
            return await store.insert(name, key_id=key, previous_id=None, sealed=sealed, **limits) is not None

        assert await insert("resp_1", count=1)
        assert not await insert("resp_2", count=1)
        assert await insert("resp_3", count=1, key=OTHER)
        assert not await insert("resp_2", size=2 * self.bytes_of_one - 1)
        assert await insert("resp_2", size=2 * self.bytes_of_one)

    async def test_an_expired_response_is_deleted_and_makes_room(self, store: ResponseStore) -> None:
        await store.insert("resp_1", key_id=KEY, previous_id=None, sealed=b"x", life_s=-1, count_max=1)
        assert await store.find("resp_1", key_id=KEY) is None
        assert await store.find_with_ancestors("resp_1", key_id=KEY) == []
        assert await store.insert("resp_2", key_id=KEY, previous_id=None, sealed=b"x", count_max=1) is not None
        await store.forget_old()
        assert await store.find("resp_2", key_id=KEY) is not None
        assert not await store.delete("resp_1", key_id=KEY)

    async def test_a_heartbeat_returns_responses_that_shall_be_cancelled(self, store: ResponseStore) -> None:
        await put(store, "resp_1")
        await put(store, "resp_2")
        await store.request_cancel("resp_1", key_id=OTHER)
        assert await store.heartbeat(["resp_1", "resp_2", "resp_3"]) == []
        await store.request_cancel("resp_1", key_id=KEY)
        assert await store.heartbeat(["resp_1", "resp_2"]) == ["resp_1"]

    async def test_a_transient_response_is_found_until_its_hour_is_over(self, store: ResponseStore) -> None:
        await keep(store, "resp_1")
        await keep(store, "resp_2", life_s=-1)
        found = await store.find("resp_1", key_id=KEY)
        assert found is not None
        assert (found.status, found.output, found.is_stored) == ("completed", b"out resp_1", False)
        assert await store.find("resp_1", key_id=OTHER) is None
        assert await store.find("resp_2", key_id=KEY) is None  # though nobody has deleted it yet
        assert await store.find_with_ancestors("resp_2", key_id=KEY) == []
        await store.forget_old()
        assert not await store.delete("resp_2", key_id=KEY)
        assert await store.delete("resp_1", key_id=KEY)

    async def test_a_transient_response_is_cancelled_and_finished_like_a_stored_one(self, store: ResponseStore) -> None:
        await store.insert_transient("resp_1", key_id=KEY, previous_id=None, sealed=b"in")
        await store.request_cancel("resp_1", key_id=KEY)
        assert await store.heartbeat(["resp_1"]) == ["resp_1"]
        assert await finish(store, "resp_1", status="cancelled")
        assert not await finish(store, "resp_1")

    async def test_a_chain_goes_through_stored_and_transient_responses(self, store: ResponseStore) -> None:
        await keep(store, "resp_1")
        await put(store, "resp_2", previous="resp_1")
        await finish(store, "resp_2")
        await keep(store, "resp_3", previous_id="resp_2")
        chain = await store.find_with_ancestors("resp_3", key_id=KEY)
        assert [(row.id, row.is_stored) for row in chain] == [("resp_3", False), ("resp_2", True), ("resp_1", False)]
        assert {row.id for row in await store.find_all(["resp_1", "resp_2", "resp_9"], key_id=KEY)} == {
            "resp_1",
            "resp_2",
        }

    async def test_the_oldest_transient_responses_of_a_key_make_room(self, store: ResponseStore) -> None:
        await keep(store, "resp_0", key=OTHER)
        await put(store, "resp_stored")
        for i in range(1, 12):
            await keep(store, f"resp_{i}", count_max=10)
        kept = [i for i in range(12) if await store.find(f"resp_{i}", key_id=KEY) is not None]
        assert kept == list(range(3, 12))
        assert await store.find("resp_0", key_id=OTHER) is not None
        assert await store.find("resp_stored", key_id=KEY) is not None

    async def test_the_size_of_a_key_s_transient_responses_is_bounded(self, store: ResponseStore) -> None:
        size = len(b"in resp_1") + len(b"out resp_1")
        for i in range(1, 4):
            await keep(store, f"resp_{i}", bytes_max=2 * size)
        assert await store.find("resp_3", key_id=KEY) is not None
        assert await store.find("resp_1", key_id=KEY) is None
