"""Stored responses: sealed under their key, which alone can read, continue, list and delete them. Compactions."""

from __future__ import annotations

import json

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import KeyId
from sparewatt.core.rng import seeded
from sparewatt.inference.responses import json_sealer
from sparewatt.inference.responses.shelf import Shelf
from tests.unit.api.responses.stage import PATH, STREAMED, Json, Stage, error_of, on_stage, read_events
from tests.unit.gateway.small_gateway import OTHER, USER, bearer
from tests.unit.inference.nodes import MODEL
from tests.unit.inference.scripted import COMPLETION
from tests.unit.store.memory_documents import MemoryDocuments
from tests.unit.store.memory_responses import MemoryResponses

PLAIN = b"A prompt that no other key may read"


async def answered(stage: Stage, **body: object) -> Json:
    stage.node.answer_when_asked(COMPLETION)
    reply = await stage.post({"store": True} | body)
    assert reply.status == 200, await reply.text()
    response: Json = await reply.json()
    return response


async def test_a_stored_response_is_sealed_and_only_its_key_reads_it() -> None:
    async with on_stage() as stage:
        response = await answered(stage, input=PLAIN.decode(), metadata={"project": "secret"})
        (row,) = stage.stored.rows.values()
        for sealed in (row.response.input, row.response.output or b""):
            assert sealed
            for word in (PLAIN, b"Hello", b"secret", b"output"):
                assert word not in sealed
        assert await (await stage.get(response["id"])).json() == response
        for path in ("", "/input_items"):
            reply = await stage.get(response["id"] + path, key=OTHER)
            assert (reply.status, (await error_of(reply))["code"]) == (404, "response_not_found")
        assert (await stage.client.delete(f"{PATH}/{response['id']}", headers=bearer(OTHER))).status == 404
        assert response["id"] in stage.stored.rows


async def test_a_row_under_another_key_does_not_open() -> None:
    async with on_stage() as stage:
        response = await answered(stage)
        stage.stored.rows[response["id"]].key_id = KeyId("key_other")
        assert (await stage.get(response["id"], key=OTHER)).status == 500


async def test_a_header_has_until_when_a_response_is_stored() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        reply = await stage.post({"store": True})
        assert reply.headers["x-sparewatt-store"].startswith("true; until=20")


async def test_a_response_continues_a_previous_one_with_its_whole_conversation() -> None:
    async with on_stage() as stage:
        first = await answered(stage, input="One", instructions="Only for the first.")
        second = await answered(stage, input="Two", previous_response_id=first["id"])
        await answered(stage, input="Three", previous_response_id=second["id"], store=False)
        body = stage.node.body.decode()
        messages = json.loads(body[body.rindex('{"model"') :])["messages"]
        assert [(m["role"], m["content"]) for m in messages] == [
            *(("user", "One"), ("assistant", "Hello"), ("user", "Two"), ("assistant", "Hello"), ("user", "Three"))
        ]


async def test_without_the_previous_response_no_node_gets_a_job() -> None:
    async with on_stage() as stage:
        first = await answered(stage)
        second = await answered(stage, previous_response_id=first["id"])
        unstored = await answered(stage, store=False)
        jobs_before = len(stage.node.opened)
        await stage.client.delete(f"{PATH}/{first['id']}", headers=bearer())
        for gone, key in ((second, USER), (unstored, USER), (second, OTHER)):
            body = {"previous_response_id": gone["id"]}
            reply = await stage.post(body, key=key)
            error = await error_of(reply)
            assert (reply.status, error["code"]) == (400, "previous_response_not_found")
            assert error["param"] == "previous_response_id"
        assert len(stage.node.opened) == jobs_before


async def test_a_response_that_is_being_written_cannot_be_continued() -> None:
    async with on_stage() as stage:
        begun = await (await stage.post({"background": True, "store": True})).json()
        reply = await stage.post({"previous_response_id": begun["id"]})
        assert (reply.status, (await error_of(reply))["param"]) == (400, "previous_response_id")
        await stage.post({}, path=f"{PATH}/{begun['id']}/cancel")


async def test_input_items_are_listed_in_pages() -> None:
    async with on_stage() as stage:
        items = [{"role": "user", "content": str(i)} for i in range(3)]
        response = await answered(stage, input=items)
        page = await (await stage.get(f"{response['id']}/input_items?order=asc&limit=2")).json()
        assert [item["content"][0]["text"] for item in page["data"]] == ["0", "1"]
        assert page["has_more"]
        rest = await (await stage.get(f"{response['id']}/input_items?order=asc&after={page['last_id']}")).json()
        assert [item["content"][0]["text"] for item in rest["data"]] == ["2"]
        for wrong in ("limit=0", "limit=101", "limit=x", "order=up", "after=msg_unknown"):
            assert (await stage.get(f"{response['id']}/input_items?{wrong}")).status == 400


async def test_a_response_is_deleted_once() -> None:
    async with on_stage() as stage:
        response = await answered(stage)
        deleted = await stage.client.delete(f"{PATH}/{response['id']}", headers=bearer())
        assert await deleted.json() == {"id": response["id"], "object": "response", "deleted": True}
        assert (await stage.client.delete(f"{PATH}/{response['id']}", headers=bearer())).status == 404
        assert (await stage.get(response["id"])).status == 404


async def test_a_finished_response_is_replayed_as_a_stream_and_cannot_be_cancelled() -> None:
    async with on_stage() as stage:
        pending = stage.posting(stream=True, store=True)
        await stage.node_request()
        stage.node.answer(*STREAMED)
        live, _ = await read_events(await pending)
        response = live[-1]["response"]
        events, done = await read_events(await stage.get(f"{response['id']}?stream=true"))
        assert done
        assert events[-1]["response"] == response
        reply = await stage.post({}, path=f"{PATH}/{response['id']}/cancel")
        assert await reply.json() == response


@pytest.mark.parametrize("name", ["resp_unknown", "nonsense", "resp_%00", "resp_" + "x" * 100])
async def test_an_unknown_or_malformed_id_is_not_found(name: str) -> None:
    async with on_stage() as stage:
        for path in (name, f"{name}/input_items", f"{name}?stream=true"):
            reply = await stage.get(path)
            assert (reply.status, (await error_of(reply))["code"]) == (404, "response_not_found")
        assert (await stage.post({}, path=f"{PATH}/{name}/cancel")).status == 404
        assert (await stage.client.delete(f"{PATH}/{name}", headers=bearer())).status == 404


async def test_a_key_whose_storage_is_full_is_refused_before_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        return None

    async with on_stage() as stage:
        monkeypatch.setattr(stage.stored, "insert", full)
        reply = await stage.post({"store": True})
        assert (reply.status, (await error_of(reply))["code"]) == (403, "storage_full")
        assert stage.node.opened == []


async def test_a_response_that_could_not_be_stored_has_store_false(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: object, **__: object) -> bool:
        return False

    async with on_stage() as stage:
        monkeypatch.setattr(stage.stored, "finish", lost)
        assert not (await answered(stage))["store"]


# compaction


async def test_a_conversation_is_compacted_and_continued() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        items = [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}]
        reply = await stage.post({"model": "llama-3-8b", "input": items}, path=f"{PATH}/compact")
        compaction = await reply.json()
        assert reply.status == 200, compaction
        assert compaction["object"] == "response.compaction"
        assert [item["type"] for item in compaction["output"]] == ["compaction"]
        assert compaction["usage"]["total_tokens"] == 7
        await answered(stage, input=[*compaction["output"], {"role": "user", "content": "Three"}])
        body = stage.node.body.decode()
        messages = json.loads(body[body.rindex('{"model"') :])["messages"]
        assert [message["content"] for message in messages] == ["One", "Hello", "Three"]
        stolen = await stage.post({"input": compaction["output"]}, key=OTHER)
        assert (stolen.status, (await error_of(stolen))["param"]) == (400, "input")


def test_a_compaction_opens_only_with_the_key_that_made_it() -> None:
    def shelf(secret: str) -> Shelf:
        return Shelf(KeyId("key_a"), secret, store=MemoryResponses(), documents=MemoryDocuments(), rng=seeded(1))

    sealed = shelf("one").seal_items([{"a": "short"}])
    assert shelf("one").open_items(sealed) == [{"a": "short"}]
    for wrong in (sealed[:-4], "", "nonsense", "é"):
        with pytest.raises(InvalidField):
            shelf("one").open_items(wrong)
    with pytest.raises(InvalidField):
        shelf("two").open_items(sealed)


async def test_large_responses_are_sealed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_sealer, "_AT_ONCE_BYTES", 10)
    async with on_stage() as stage:
        response = await answered(stage)
        assert await (await stage.get(response["id"])).json() == response


async def test_tokens_are_estimated_without_a_model() -> None:
    async with on_stage() as stage:
        reply = await stage.post({"input": "Hello there"}, path=f"{PATH}/input_tokens")
        assert reply.headers["x-sparewatt-estimated"] == "input_tokens"
        counted = await reply.json()
        assert counted["object"] == "response.input_tokens"
        assert counted["input_tokens"] > 1
        for wrong in (b"", b"[]", b"{"):
            bad = await stage.client.post(f"{PATH}/input_tokens", headers=bearer(), data=wrong)
            assert bad.status == 400


async def test_a_key_opens_its_shelf_by_either_header() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        body = {"model": MODEL, "input": "Hi", "store": True}
        made = await (await stage.client.post("/v1/responses", headers={"x-api-key": USER}, json=body)).json()
        assert made["store"] is True
        assert (await stage.get(made["id"])).status == 200
        other = await stage.client.get(f"/v1/responses/{made['id']}", headers={"x-api-key": OTHER})
        assert other.status == 404
