"""Chat completions with `store: true`: listed, shown, changed and deleted by their key, for a day."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientResponse

from tests.unit.api.responses.stage import STREAMED, Json, Stage, error_of, on_stage
from tests.unit.gateway.small_gateway import OTHER, USER, bearer, key_row
from tests.unit.inference.nodes import MODEL
from tests.unit.inference.scripted import COMPLETION
from tests.unit.store.memory_documents import MemoryDocuments

PATH = "/v1/chat/completions"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "A word in private"}]}


async def call(
    stage: Stage, method: str, path: str = "", body: Json | None = None, *, key: str = USER
) -> ClientResponse:
    return await stage.client.request(method, f"{PATH}{path}", json=body, headers=bearer(key))


async def stored(stage: Stage, *pieces: bytes, **more: Any) -> str:
    """The body of the reply."""
    stage.node.answer_when_asked(*pieces or (COMPLETION,))
    reply = await call(stage, "POST", body=CHAT | {"store": True} | more)
    assert reply.status == 200, await reply.text()
    assert "x-sparewatt-ignored-params" not in reply.headers
    return await reply.text()


async def listed(stage: Stage, query: str = "", *, key: str = USER) -> list[str]:
    page = await (await call(stage, "GET", f"?{query}", key=key)).json()
    return [each["id"] for each in page["data"]]


def completion_named(name: str) -> bytes:
    return COMPLETION.replace(b'"c1"', json.dumps(name).encode())


async def test_a_completion_is_stored_with_its_messages_and_metadata() -> None:
    async with on_stage() as stage:
        sent = json.loads(await stored(stage, metadata={"about": "words"}))
        found = await (await call(stage, "GET", "/c1")).json()
        assert found == sent | {"metadata": {"about": "words"}}
        messages = await (await call(stage, "GET", "/c1/messages")).json()
        (message,) = messages["data"]
        assert (message["id"], message["role"], message["content"]) == ("c1-0", "user", "A word in private")
        changed = await (await call(stage, "POST", "/c1", {"metadata": {"about": "nothing"}})).json()
        assert changed["metadata"] == {"about": "nothing"}
        deleted = await (await call(stage, "DELETE", "/c1")).json()
        assert deleted == {"id": "c1", "object": "chat.completion.deleted", "deleted": True}
        for method, path in (("GET", "/c1"), ("DELETE", "/c1"), ("GET", "/c1/messages"), ("GET", "/%20")):
            reply = await call(stage, method, path)
            assert (reply.status, (await error_of(reply))["code"]) == (404, "completion_not_found")


async def test_a_stream_is_stored_as_the_completion_that_it_comes_to() -> None:
    async with on_stage() as stage:
        text = await stored(stage, *STREAMED, stream=True)
        assert text.endswith("data: [DONE]\n\n")
        found = await (await call(stage, "GET", "/c1")).json()
        assert found["object"] == "chat.completion"
        assert found["choices"][0]["message"]["content"] == "Hello"
        assert found["choices"][0]["finish_reason"] == "stop"


async def test_nothing_is_stored_unless_it_is_asked_for() -> None:
    async with on_stage() as stage:
        for more in ({}, {"store": False}, {"store": None}):
            stage.node.answer_when_asked(COMPLETION)
            assert (await call(stage, "POST", body=CHAT | more)).status == 200
        assert await listed(stage) == []


async def test_completions_are_listed_in_pages_by_model_and_metadata() -> None:
    async with on_stage() as stage:
        for i in range(4):
            name = completion_named(f"c{i}").replace(b'"object"', b'"model":"%d","object"' % (i % 2))
            await stored(stage, name, metadata={"half": str(i // 2)})
        assert await listed(stage) == ["c0", "c1", "c2", "c3"]
        assert await listed(stage, "order=desc&limit=2") == ["c3", "c2"]
        assert await listed(stage, "after=c1") == ["c2", "c3"]
        assert await listed(stage, "model=1") == ["c1", "c3"]
        assert await listed(stage, "metadata[half]=1") == ["c2", "c3"]
        assert (await call(stage, "GET", "?after=none")).status == 404


async def test_another_key_finds_nothing_and_the_database_reads_nothing() -> None:
    async with on_stage() as stage:
        await stored(stage, metadata={"about": "secret"})
        assert await listed(stage, key=OTHER) == []
        for method, path in (("GET", "/c1"), ("POST", "/c1"), ("DELETE", "/c1"), ("GET", "/c1/messages")):
            assert (await call(stage, method, path, {"metadata": {}}, key=OTHER)).status == 404
        documents = stage.services.database.documents
        assert isinstance(documents, MemoryDocuments)
        for row in documents.rows.values():
            for word in (b"private", b"secret", b"Hello"):
                assert word not in row.sealed


async def test_a_node_cannot_replace_what_is_stored() -> None:
    async with on_stage() as stage:
        await stored(stage)
        await stored(stage, COMPLETION.replace(b"Hello", b"Another"))
        await stored(stage, completion_named("../odd"))
        found = await (await call(stage, "GET", "/c1")).json()
        assert found["choices"][0]["message"]["content"] == "Hello"
        assert await listed(stage) == ["c1"]


async def test_an_answer_that_broke_off_is_not_stored() -> None:
    async with on_stage() as stage:
        broken = b'data: {"error":{"message":"broke","code":"x"}}\n\n'
        await stored(stage, *STREAMED[:2], broken, stream=True)
        assert await listed(stage) == []


@pytest.mark.parametrize(
    ("more", "status", "param"),
    [
        ({"metadata": {"k": "v" * 513}}, 400, "metadata.k"),
        ({"metadata": {"k": 1}}, 400, "metadata"),
        ({"provider": {"retention": "hour"}}, 403, "store"),
    ],
)
async def test_what_cannot_be_stored_is_refused_before_it_costs_anything(more: Json, status: int, param: str) -> None:
    async with on_stage() as stage:
        reply = await call(stage, "POST", body=CHAT | {"store": True} | more)
        assert (reply.status, (await error_of(reply))["param"]) == (status, param)
        assert stage.node.opened == []


async def test_a_policy_forbids_it_and_the_error_says_so() -> None:
    async with on_stage() as stage:
        policy = json.dumps("retention=none")
        stage.services.keys.put([replace(key_row("user", USER, "inference"), policy=policy, version=2)])
        reply = await call(stage, "POST", body=CHAT | {"store": True})
        assert reply.status == 403
        assert "retention=none" in (await error_of(reply))["message"]
