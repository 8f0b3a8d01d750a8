"""Conversations: items that responses read and add to. Each key has its own, sealed, for a day."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

from aiohttp import ClientResponse

from tests.unit.api.responses.stage import Json, Stage, error_of, on_stage
from tests.unit.gateway.small_gateway import OTHER, USER, bearer, key_row
from tests.unit.inference.scripted import COMPLETION
from tests.unit.store.memory_documents import MemoryDocuments

PATH = "/v1/conversations"
HELLO = {"type": "message", "role": "user", "content": "A first word"}


async def call(
    stage: Stage, method: str, path: str = "", body: Json | None = None, *, key: str = USER
) -> ClientResponse:
    return await stage.client.request(method, f"{PATH}{path}", json=body, headers=bearer(key))


async def made(stage: Stage, **body: Any) -> Json:
    reply = await call(stage, "POST", body=body)
    assert reply.status == 200, await reply.text()
    conversation: Json = await reply.json()
    return conversation


async def texts(stage: Stage, conversation: Json, query: str = "order=asc") -> list[str]:
    page = await (await call(stage, "GET", f"/{conversation['id']}/items?{query}")).json()
    return [item["content"][0]["text"] for item in page["data"]]


async def answered(stage: Stage, **body: Any) -> Json:
    stage.node.answer_when_asked(COMPLETION)
    reply = await stage.post(body)
    assert reply.status == 200, await reply.text()
    response: Json = await reply.json()
    return response


def documents(stage: Stage) -> MemoryDocuments:
    store = stage.services.database.documents
    assert isinstance(store, MemoryDocuments)
    return store


async def test_a_conversation_is_made_changed_and_deleted_with_its_items() -> None:
    async with on_stage() as stage:
        conversation = await made(stage, metadata={"topic": "one"}, items=[HELLO])
        assert conversation == {
            "id": conversation["id"],
            "object": "conversation",
            "created_at": conversation["created_at"],
            "metadata": {"topic": "one"},
        }
        path = f"/{conversation['id']}"
        changed = await (await call(stage, "POST", path, {"metadata": {"topic": "two"}})).json()
        assert changed == conversation | {"metadata": {"topic": "two"}}
        assert await (await call(stage, "GET", path)).json() == changed
        deleted = await (await call(stage, "DELETE", path)).json()
        assert deleted == {"id": conversation["id"], "object": "conversation.deleted", "deleted": True}
        for method, tail in (("GET", path), ("DELETE", path), ("GET", f"{path}/items")):
            reply = await call(stage, method, tail)
            assert (reply.status, (await error_of(reply))["code"]) == (404, "conversation_not_found")
        assert documents(stage).rows == {}


async def test_items_are_added_listed_in_pages_and_deleted() -> None:
    async with on_stage() as stage:
        conversation = await made(stage)
        path = f"/{conversation['id']}/items"
        items = [{"role": "user", "content": str(i), "id": "made up"} for i in range(3)]
        added = await (await call(stage, "POST", path, {"items": items})).json()
        assert (added["object"], added["has_more"], len(added["data"])) == ("list", False, 3)
        assert await texts(stage, conversation) == ["0", "1", "2"]
        assert await texts(stage, conversation, "limit=2") == ["2", "1"]
        first, second = added["data"][0]["id"], added["data"][1]["id"]
        assert await texts(stage, conversation, f"order=asc&after={first}") == ["1", "2"]
        assert (await (await call(stage, "GET", f"{path}/{second}")).json())["content"][0]["text"] == "1"
        assert await (await call(stage, "DELETE", f"{path}/{second}")).json() == conversation
        assert await texts(stage, conversation) == ["0", "2"]
        for tail in (f"/{second}", "?after=msg_none", "/..%2f"):
            assert (await call(stage, "GET", path + tail)).status == 404


async def test_a_response_reads_a_conversation_and_adds_to_it() -> None:
    async with on_stage() as stage:
        conversation = await made(stage, items=[HELLO])
        named = {"role": "user", "content": "One", "id": "what the client calls it"}
        response = await answered(stage, conversation=conversation["id"], input=[named])
        assert response["conversation"] == {"id": conversation["id"]}
        await answered(stage, conversation={"id": conversation["id"]}, input="Two", store=False)
        body = stage.node.body.decode()
        messages = json.loads(body[body.rindex('{"model"') :])["messages"]
        assert [m["content"] for m in messages] == ["A first word", "One", "Hello", "Two"]
        assert await texts(stage, conversation) == ["A first word", "One", "Hello", "Two", "Hello"]
        both = await stage.post({"conversation": conversation["id"], "previous_response_id": response["id"]})
        assert (both.status, (await error_of(both))["param"]) == (400, "previous_response_id")


async def test_another_key_and_another_day_find_nothing() -> None:
    async with on_stage() as stage:
        conversation = await made(stage, items=[HELLO])
        assert (await call(stage, "GET", f"/{conversation['id']}", key=OTHER)).status == 404
        asked = await stage.post({"conversation": conversation["id"]}, key=OTHER)
        assert (asked.status, (await error_of(asked))["code"]) == (404, "conversation_not_found")
        store, past = documents(stage), dt.datetime.now(dt.UTC)
        store.rows = {place: replace(row, expires_at=past) for place, row in store.rows.items()}
        assert (await call(stage, "GET", f"/{conversation['id']}")).status == 404
        assert (await stage.post({"conversation": conversation["id"]})).status == 404


async def test_what_is_stored_is_sealed() -> None:
    async with on_stage() as stage:
        await made(stage, metadata={"topic": "secret"}, items=[HELLO])
        for row in documents(stage).rows.values():
            for word in (b"secret", b"first", b"content"):
                assert word not in row.sealed


async def test_a_policy_forbids_conversations() -> None:
    async with on_stage() as stage:
        conversation = await made(stage, items=[HELLO])
        policy = json.dumps("retention=hour")
        stage.services.keys.put([replace(key_row("user", USER, "inference"), policy=policy, version=2)])
        for reply in (await call(stage, "POST", body={}), await stage.post({"conversation": conversation["id"]})):
            error = await error_of(reply)
            assert (reply.status, error["code"]) == (403, "retention_forbidden")
            assert "retention=hour" in error["message"]


async def test_wrong_bodies_are_refused() -> None:
    async with on_stage() as stage:
        conversation = await made(stage)
        many = [HELLO] * 21
        for body in (
            {"items": many},
            {"items": [{"type": "item_reference", "id": "x"}]},
            {"metadata": {"a": "b" * 513}},
        ):
            assert (await call(stage, "POST", body=body)).status == 400
            assert (await call(stage, "POST", f"/{conversation['id']}/items", body)).status == 400
