"""POST /v1/responses: whole, streamed, broken, cancelled and in the background, frame by frame."""

from __future__ import annotations

import pytest

from tests.unit.api.responses.stage import STREAMED, Json, error_of, on_stage, read_events
from tests.unit.gateway.small_gateway import OTHER, bearer
from tests.unit.inference.nodes import MODEL
from tests.unit.inference.scripted import COMPLETION, ROLE, text_event
from tests.waiting import until

TEXT = "Hello"


def text_of(response: Json) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


async def test_a_chat_completion_becomes_a_response() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        reply = await stage.post({"instructions": "Be kind."})
        assert reply.status == 200
        assert reply.headers["x-sparewatt-store"].startswith("hour; until=20")
        assert reply.headers["x-sparewatt-match-id"].startswith("match_")
        response = await reply.json()
        assert (response["object"], response["status"], response["store"]) == ("response", "completed", False)
        assert text_of(response) == TEXT
        assert response["usage"]["total_tokens"] == 7
        body = await stage.node_request()
        assert body["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
        assert stage.node.opened[0].path == "/v1/chat/completions"
        assert not any(row.response.is_stored for row in stage.stored.rows.values())


async def test_a_stream_is_translated_chunk_by_chunk() -> None:
    async with on_stage() as stage:
        pending = stage.posting(stream=True)
        assert (await stage.node_request())["stream_options"] == {"include_usage": True}
        stage.node.begin(*STREAMED[:2])
        reply = await pending
        assert reply.content_type == "text/event-stream"
        first = await reply.content.readuntil(b'"delta":"Hel"')
        assert b"response.created" in first
        stage.node.data(*STREAMED[2:])
        stage.node.end()
        rest = await reply.text()
        assert '"delta":"lo"' in rest
        assert rest.endswith("data: [DONE]\n\n")


async def test_a_node_that_is_lost_in_the_middle_ends_the_stream_as_failed() -> None:
    async with on_stage() as stage:
        pending = stage.posting(stream=True, store=True)
        await stage.node_request()
        stage.node.begin(ROLE, text_event("Hel"))
        reply = await pending
        stage.node.lost()
        events, done = await read_events(reply)
        assert [event["type"] for event in events[-2:]] == ["response.failed", "error"]
        assert not done
        response = events[-2]["response"]
        assert text_of(response) == "Hel"
        stored = await (await stage.get(response["id"])).json()
        assert stored == response


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_before_the_first_token_is_an_http_error_and_nothing_is_stored(*, stream: bool) -> None:
    async with on_stage() as stage:
        reply = await stage.post({"model": "unknown", "store": True, "stream": stream})
        assert (reply.status, (await error_of(reply))["code"]) == (404, "model_not_found")
        await until(lambda: not stage.stored.rows)


async def test_a_malformed_answer_of_a_node_is_an_error() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(b'{"choices":[{"message":5}]}')
        reply = await stage.post({"store": True})
        assert (reply.status, (await error_of(reply))["code"]) == (502, "node_failed")


async def test_when_a_client_leaves_the_node_stops_and_the_partial_answer_is_stored() -> None:
    async with on_stage() as stage:
        pending = stage.posting(stream=True, store=True)
        await stage.node_request()
        stage.node.begin(ROLE, text_event("Hel"))
        reply = await pending
        await reply.content.readuntil(b'"delta":"Hel"')
        (response_id,) = stage.stored.rows
        live = stage.services.responses.find(response_id, key_id=stage.stored.rows[response_id].key_id)
        assert live is not None
        reply.close()
        live.cancel()  # the test's server does not notice by itself that a client has left
        await until(lambda: stage.stored.rows[response_id].response.status == "cancelled")
        assert stage.node.cancelled == [1]
        assert text_of(await (await stage.get(response_id)).json()) == "Hel"


async def test_a_stream_is_cancelled_by_its_id_stored_or_not() -> None:
    async with on_stage() as stage:
        pending = stage.posting(stream=True, store=False)
        await stage.node_request()
        stage.node.begin(ROLE, text_event("Hel"))
        reply = await pending
        (response_id,) = stage.services.responses._live
        other = await stage.client.post(f"/v1/responses/{response_id}/cancel", headers=bearer(OTHER))
        assert other.status == 404
        cancelled = await stage.post({}, path=f"/v1/responses/{response_id}/cancel")
        assert (await cancelled.json())["status"] == "cancelled"
        events, done = await read_events(reply)
        assert done
        assert (events[-1]["type"], events[-1]["response"]["status"]) == ("response.incomplete", "cancelled")
        assert stage.node.cancelled == [1]
        assert (await stage.get(response_id)).status == 404


async def test_a_whole_answer_can_be_cancelled_before_it_comes() -> None:
    async with on_stage() as stage:
        pending = stage.posting()
        await stage.node_request()
        (response_id,) = stage.services.responses._live
        await stage.post({}, path=f"/v1/responses/{response_id}/cancel")
        assert (await (await pending).json())["status"] == "cancelled"


# in the background


async def test_a_background_response_is_fetched_when_it_is_complete() -> None:
    async with on_stage() as stage:
        reply = await stage.post({"background": True, "store": True})
        begun = await reply.json()
        assert begun["status"] == "in_progress"
        await stage.node_request()
        assert (await (await stage.get(begun["id"])).json())["status"] == "in_progress"
        stage.node.answer(*STREAMED)
        await until(lambda: stage.stored.rows[begun["id"]].response.status == "completed")
        over = await (await stage.get(begun["id"])).json()
        assert (text_of(over), over["background"]) == (TEXT, True)


async def test_a_background_stream_can_be_resumed() -> None:
    async with on_stage() as stage:
        pending = stage.posting(background=True, store=True, stream=True)
        await stage.node_request()
        stage.node.begin(*STREAMED[:2])
        reply = await pending
        await reply.content.readuntil(b'"delta":"Hel"')
        reply.close()
        (response_id,) = stage.stored.rows
        again = await stage.get(f"{response_id}?stream=true&starting_after=3")
        stage.node.data(*STREAMED[2:])
        stage.node.end()
        events, done = await read_events(again)
        assert done
        assert [event["delta"] for event in events if "delta" in event] == ["Hel", "lo"]
        assert [event["sequence_number"] for event in events] == list(range(4, 4 + len(events)))
        assert stage.node.cancelled == []


async def test_a_failed_background_response_has_its_error() -> None:
    async with on_stage() as stage:
        reply = await stage.post({"background": True, "store": True, "model": "unknown"})
        begun = await reply.json()
        await until(lambda: stage.stored.rows[begun["id"]].response.status == "failed")
        over = await (await stage.get(begun["id"])).json()
        assert "unknown" in over["error"]["message"]


async def test_a_background_response_is_cancelled() -> None:
    async with on_stage() as stage:
        begun = await (await stage.post({"background": True, "store": True})).json()
        await stage.node_request()
        stage.node.begin(ROLE, text_event("Hel"))
        for _ in range(2):
            reply = await stage.post({}, path=f"/v1/responses/{begun['id']}/cancel")
            assert (await reply.json())["status"] == "cancelled"
        await until(lambda: stage.node.cancelled == [1])
        assert stage.stored.rows[begun["id"]].response.status == "cancelled"


async def test_the_same_request_under_one_idempotency_key_is_answered_once() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        headers = {"idempotency-key": "once"}
        first, second = [await (await stage.post({}, **headers)).json() for _ in range(2)]
        assert first == second
        assert len(stage.node.opened) == 1


async def test_fields_without_effect_are_named_in_a_header() -> None:
    async with on_stage() as stage:
        stage.node.answer_when_asked(COMPLETION)
        reply = await stage.post({"truncation": "auto", "tools": [{"type": "web_search"}], "novel": 1})
        assert reply.headers["x-sparewatt-ignored-params"] == "truncation, novel, tools.web_search"
        strict = await stage.post({"novel": 1, "provider": {"require_parameters": True}})
        assert (strict.status, (await error_of(strict))["param"]) == (400, "novel")


async def test_a_policy_is_applied_and_not_sent_to_the_node() -> None:
    async with on_stage() as stage:
        reply = await stage.post({"provider": {"region": ["JP"]}})
        assert (reply.status, (await error_of(reply))["code"]) == (503, "no_eligible_node")
        stage.node.answer_when_asked(COMPLETION)
        reply = await stage.post({"provider": {"max_price": 1000}})
        assert reply.status == 200
        assert (await stage.node_request())["model"] == MODEL
        assert "provider" not in await stage.node_request()
