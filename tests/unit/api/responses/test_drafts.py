"""Responses whose requests did not say `store`: kept for an hour, so that a client can go on, and no longer."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

from sparewatt.core.errors import StoreUnavailable
from tests.unit.api.responses.stage import PATH, Json, Stage, error_of, on_stage
from tests.unit.gateway.small_gateway import OTHER, USER, bearer, key_row
from tests.unit.inference.nodes import MODEL
from tests.unit.inference.scripted import COMPLETION
from tests.unit.store.memory_responses import MemoryResponses


async def answered(stage: Stage, **body: object) -> Json:
    stage.node.answer_when_asked(COMPLETION)
    reply = await stage.post(dict(body))
    assert reply.status == 200, await reply.text()
    response: Json = await reply.json()
    return response


def last_messages(stage: Stage) -> list[tuple[str, str]]:
    body = stage.node.body.decode()
    return [(m["role"], m["content"]) for m in json.loads(body[body.rindex('{"model"') :])["messages"]]


def expire(stage: Stage, response: Json) -> None:
    """As if its hour were over, and nothing had been deleted."""
    row = stage.stored.rows[response["id"]]
    row.response = replace(row.response, expires_at=dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1))


def set_policy(stage: Stage, policy: str) -> None:
    keys = [replace(key_row("user", USER, "inference"), policy=json.dumps(policy), version=2)]
    stage.services.keys.put(keys)


async def test_a_conversation_goes_on_by_the_id_of_its_last_response() -> None:
    async with on_stage() as stage:
        first = await answered(stage, input="One")
        assert not first["store"]
        second = await answered(stage, input="Two", previous_response_id=first["id"])
        await answered(stage, input="Three", previous_response_id=second["id"], store=False)
        assert last_messages(stage) == [
            *(("user", "One"), ("assistant", "Hello"), ("user", "Two"), ("assistant", "Hello"), ("user", "Three"))
        ]
        assert await (await stage.get(first["id"])).json() == first


async def test_an_earlier_answer_is_sent_by_reference() -> None:
    async with on_stage() as stage:
        first = await answered(stage, input="One")
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        items = [{"role": "user", "content": "One"}, reference, {"role": "user", "content": "Two"}]
        second = await answered(stage, input=items)
        assert last_messages(stage) == [("user", "One"), ("assistant", "Hello"), ("user", "Two")]
        await answered(stage, input="Three", previous_response_id=second["id"])
        assert last_messages(stage)[-3:] == [("user", "Two"), ("assistant", "Hello"), ("user", "Three")]
        for body, key in (({"input": items}, OTHER), ({"input": [{"type": "item_reference", "id": "msg_x_0"}]}, USER)):
            reply = await stage.post(body, key=key)
            assert (reply.status, (await error_of(reply))["code"]) == (404, "item_not_found")


async def test_after_its_hour_nothing_opens_though_nothing_was_deleted() -> None:
    async with on_stage() as stage:
        first = await answered(stage, input="One")
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        second = await answered(stage, input=[reference, {"role": "user", "content": "Two"}])
        stored = await answered(stage, input=[reference, {"role": "user", "content": "Three"}], store=True)
        expire(stage, first)
        assert (await stage.get(first["id"])).status == 404
        assert (await stage.post({"previous_response_id": first["id"]})).status == 400
        assert (await stage.post({"input": [reference]})).status == 404
        gone = await stage.post({"previous_response_id": second["id"]})
        assert (gone.status, (await error_of(gone))["code"]) == (404, "item_not_found")
        await answered(stage, input="Four", previous_response_id=stored["id"])
        assert last_messages(stage)[0] == ("assistant", "Hello")


async def test_with_store_false_nothing_is_kept() -> None:
    async with on_stage() as stage:
        response = await answered(stage, store=False)
        assert stage.stored.rows == {}
        assert (await stage.get(response["id"])).status == 404
        assert (await stage.post({"previous_response_id": response["id"]})).status == 400


async def test_a_policy_can_forbid_it_and_the_error_says_so() -> None:
    async with on_stage() as stage:
        set_policy(stage, "retention=none")
        response = await answered(stage)
        assert stage.stored.rows == {}
        for body, status in (({"previous_response_id": response["id"]}, 400), ({"store": True}, 403)):
            reply = await stage.post(body)
            assert reply.status == status
            assert "retention=none" in (await error_of(reply))["message"]
        background = await stage.post({"background": True})
        assert (background.status, (await error_of(background))["code"]) == (403, "retention_forbidden")
        wider = await stage.post({"provider": {"retention": "hour"}})
        assert (wider.status, (await error_of(wider))["code"]) == (403, "key_policy_violation")


async def test_a_policy_of_an_hour_lets_a_client_go_on_and_not_store() -> None:
    async with on_stage() as stage:
        set_policy(stage, "retention=hour")
        response = await answered(stage, input="One")
        await answered(stage, input="Two", previous_response_id=response["id"])
        assert (await stage.post({"store": True})).status == 403


async def test_a_request_can_say_itself_that_nothing_is_kept() -> None:
    async with on_stage() as stage:
        await answered(stage, provider={"retention": "none"})
        assert stage.stored.rows == {}


async def test_a_background_response_is_kept_from_its_beginning() -> None:
    async with on_stage() as stage:
        begun = await (await stage.post({"background": True})).json()
        (row,) = stage.stored.rows.values()
        assert not row.response.is_stored
        assert (await (await stage.get(begun["id"])).json())["status"] == "in_progress"
        await stage.post({}, path=f"{PATH}/{begun['id']}/cancel")
        assert (await (await stage.get(begun["id"])).json())["status"] == "cancelled"


async def test_one_that_is_deleted_while_it_is_written_is_not_kept() -> None:
    async with on_stage() as stage:
        pending = stage.posting()
        await stage.node_request()
        (response_id,) = stage.services.responses._live
        assert (await stage.client.delete(f"{PATH}/{response_id}", headers=bearer(OTHER))).status == 404
        assert (await stage.client.delete(f"{PATH}/{response_id}", headers=bearer())).status == 200
        await pending
        assert stage.stored.rows == {}


async def test_what_is_kept_is_sealed_under_its_key() -> None:
    async with on_stage() as stage:
        await answered(stage, input="A prompt that no other key may read", metadata={"project": "secret"})
        (row,) = stage.stored.rows.values()
        for word in (b"prompt", b"Hello", b"secret", MODEL.encode()):
            assert word not in row.response.input + (row.response.output or b"")


class AwayResponses(MemoryResponses):
    async def insert_transient(self, *_: object, **__: object) -> dt.datetime:
        raise StoreUnavailable("The network's database is away.")


async def test_an_answer_comes_though_it_cannot_be_kept() -> None:
    async with on_stage() as stage:
        stage.stored.__class__ = AwayResponses
        response = await answered(stage)
        assert response["status"] == "completed"
