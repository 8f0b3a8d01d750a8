"""`/v1/responses` as users of the official Python client meet it, on a network of real processes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel

from sparewatt.testing import expected_text, render_chat
from tests.integration.asking import ask
from tests.integration.bookkeeping import rows
from tests.integration.networks import Network, wait_until
from tests.integration.people import give_credits, send, sign_up

LIMIT = 8
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}


@pytest.fixture
def client(shared_network: Network) -> Iterator[openai.OpenAI]:
    with client_of(shared_network, shared_network.api_key) as client:
        yield client


def client_of(network: Network, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=network.base_url, api_key=key, max_retries=0)


def text_for(*messages: tuple[str, str], limit: int | None = LIMIT) -> str:
    prompt = render_chat([{"role": role, "content": content} for role, content in messages])
    return expected_text(prompt, max_tokens=limit)


def test_text_comes_whole_with_its_counts_and_cost(client: openai.OpenAI, shared_network: Network) -> None:
    raw = client.responses.with_raw_response.create(
        model=shared_network.model, input="Hi", instructions="Be kind.", max_output_tokens=LIMIT
    )
    response = raw.parse()
    assert response.output_text == text_for(("system", "Be kind."), ("user", "Hi"))
    assert (response.status, response.incomplete_details and response.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert response.usage is not None
    assert response.usage.output_tokens == LIMIT
    assert float(raw.headers["x-sparewatt-cost"]) == pytest.approx(response.usage.to_dict()["cost"])
    explained = ask(shared_network, "GET", f"/v1/matches/{raw.headers['x-sparewatt-match-id']}")
    assert explained.json()["attempts"][0]["outcome"] == "done"


def test_text_comes_in_pieces(client: openai.OpenAI, shared_network: Network) -> None:
    with client.responses.stream(model=shared_network.model, input="Hi") as stream:
        events = list(stream)
        final = stream.get_final_response()
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(pieces) > LIMIT
    assert "".join(pieces) == final.output_text == text_for(("user", "Hi"), limit=None)
    assert [event.sequence_number for event in events] == sorted({event.sequence_number for event in events})


def test_a_function_is_called_and_its_result_answered(client: openai.OpenAI, shared_network: Network) -> None:
    ask_for: list[Any] = [{"role": "user", "content": "What is the weather?"}]
    first = client.responses.create(model=shared_network.model, input=ask_for, tools=[WEATHER])
    (call,) = first.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert set(json.loads(call.arguments)) == {"city"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    items = [*ask_for, call.to_dict(), result]
    second = client.responses.create(model=shared_network.model, input=items, tools=[WEATHER], max_output_tokens=LIMIT)
    assert second.output[0].type == "message"
    assert second.output_text


class Place(BaseModel):
    name: str
    people: int


def test_an_answer_keeps_to_a_schema(client: openai.OpenAI, shared_network: Network) -> None:
    parsed = client.responses.parse(model=shared_network.model, input="A place, please.", text_format=Place)
    assert isinstance(parsed.output_parsed, Place)


def test_one_goes_on_from_another_is_listed_and_deleted(client: openai.OpenAI, shared_network: Network) -> None:
    model = shared_network.model
    first = client.responses.create(model=model, input="One", store=True, max_output_tokens=LIMIT)
    assert first.to_dict()["store"] is True
    second = client.responses.create(
        model=model, input="Two", previous_response_id=first.id, store=True, max_output_tokens=LIMIT
    )
    assert second.output_text == text_for(("user", "One"), ("assistant", first.output_text), ("user", "Two"))
    assert client.responses.retrieve(second.id).output_text == second.output_text
    assert [item.to_dict()["content"] for item in client.responses.input_items.list(second.id)] == [
        [{"type": "input_text", "text": "Two"}]
    ]
    replayed = [event.type for event in client.responses.retrieve(first.id, stream=True)]
    assert replayed[-1] == "response.incomplete"
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=model, input="Three", previous_response_id=second.id)
    assert caught.value.code == "previous_response_not_found"


def test_what_says_nothing_of_storing_can_be_continued_and_what_says_false_cannot(
    client: openai.OpenAI, shared_network: Network
) -> None:
    model, answers = shared_network.model, {}
    for store in (openai.omit, False):
        first = client.responses.create(model=model, input="One", store=store, max_output_tokens=LIMIT)
        assert first.to_dict()["store"] is False
        answers[bool(store is False)] = first
    unsaid, unkept = answers[False], answers[True]
    second = client.responses.create(model=model, input="Two", previous_response_id=unsaid.id, max_output_tokens=LIMIT)
    assert second.output_text == text_for(("user", "One"), ("assistant", unsaid.output_text), ("user", "Two"))
    assert client.responses.retrieve(unsaid.id).output_text == unsaid.output_text
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)
    with pytest.raises(openai.BadRequestError, match="not at all where it said false"):
        client.responses.create(model=model, input="Two", previous_response_id=unkept.id)


def test_an_earlier_answer_is_sent_by_reference(client: openai.OpenAI, shared_network: Network) -> None:
    model = shared_network.model
    first = client.responses.create(model=model, input="One", max_output_tokens=LIMIT)
    items: list[Any] = [
        {"role": "user", "content": "One"},
        {"type": "item_reference", "id": first.output[0].id},
        {"role": "user", "content": "Two"},
    ]
    second = client.responses.create(model=model, input=items, max_output_tokens=LIMIT)
    assert second.output_text == text_for(("user", "One"), ("assistant", first.output_text), ("user", "Two"))


def test_an_hour_later_nothing_opens_though_nobody_has_deleted_it(
    client: openai.OpenAI, shared_network: Network
) -> None:
    model = shared_network.model
    first = client.responses.create(model=model, input="One", max_output_tokens=LIMIT)
    rows(shared_network, "UPDATE transient_responses SET expires_at = now() WHERE id = $1 RETURNING id", first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    items: list[Any] = [{"type": "item_reference", "id": first.output[0].id}]
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model=model, input=items)
    assert caught.value.code == "item_not_found"


def test_a_key_s_policy_forbids_keeping_and_the_error_says_so(shared_network: Network) -> None:
    made = ask(shared_network, "POST", "/v1/keys", {"name": "none", "policy": {"retention": "none"}}).json()
    with client_of(shared_network, made["key"]) as client:
        first = client.responses.create(model=shared_network.model, input="One", max_output_tokens=LIMIT)
        with pytest.raises(openai.BadRequestError, match="retention=none"):
            client.responses.create(model=shared_network.model, input="Two", previous_response_id=first.id)
        with pytest.raises(openai.PermissionDeniedError, match="retention=none"):
            client.responses.create(model=shared_network.model, input="Two", store=True)
    assert rows(shared_network, "SELECT id FROM transient_responses WHERE id = $1", first.id) == []


def test_another_key_and_a_browser_find_nothing(client: openai.OpenAI, shared_network: Network) -> None:
    response = client.responses.create(model=shared_network.model, input="Hi", store=True, max_output_tokens=LIMIT)
    person = give_credits(shared_network, sign_up(shared_network, f"reader-{secrets.token_hex(4)}@example.org"))
    with client_of(shared_network, person.key) as other:
        for look in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                look(response.id)
    path, browser = f"/v1/responses/{response.id}", person.browser.headers()
    assert send(shared_network, "GET", path, None, browser).status == 404
    body = {"model": shared_network.model, "input": "Hi", "max_output_tokens": LIMIT}
    assert send(shared_network, "POST", "/v1/responses", body, browser).status == 200
    refused = send(shared_network, "POST", "/v1/responses", body | {"store": True}, browser)
    assert (refused.status, refused.error()["param"]) == (400, "store")


def test_an_answer_in_the_background_ends_or_is_cancelled(client: openai.OpenAI, shared_network: Network) -> None:
    model = shared_network.model
    begun = client.responses.create(model=model, input="Hi", background=True, store=True, max_output_tokens=LIMIT)
    assert begun.status in ("queued", "in_progress")
    wait_until(lambda: client.responses.retrieve(begun.id).status == "incomplete", "the answer is there")
    assert client.responses.retrieve(begun.id).output_text == text_for(("user", "Hi"))
    endless = client.responses.create(
        model=model, input="Hi", background=True, store=True, extra_body={"ignore_eos": True}, max_output_tokens=8_000
    )
    cancelled = client.responses.cancel(endless.id)
    assert cancelled.status == "cancelled"
    assert client.responses.retrieve(endless.id).status == "cancelled"


def test_a_stream_that_its_client_leaves_is_stopped_and_kept(client: openai.OpenAI, shared_network: Network) -> None:
    stream = client.responses.create(
        model=shared_network.model,
        input="Hi",
        stream=True,
        store=True,
        extra_body={"ignore_eos": True},
        max_output_tokens=8_000,
    )
    events = iter(stream)
    first = next(events)
    assert first.type == "response.created"
    while next(events).type != "response.output_text.delta":
        """Some text must be there."""
    stream.close()
    wait_until(lambda: client.responses.retrieve(first.response.id).status == "cancelled", "it has stopped")
    assert client.responses.retrieve(first.response.id).output_text


def test_what_is_stored_cannot_be_read_in_the_database(client: openai.OpenAI, shared_network: Network) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    for store in (True, openai.omit):
        client.responses.create(
            model=shared_network.model, input=marker, metadata={"m": marker}, store=store, max_output_tokens=LIMIT
        )
    found = rows(shared_network, "SELECT input, output FROM kept_responses")
    dumped = b"".join(row["input"] + (row["output"] or b"") for row in found)
    assert dumped
    assert marker.encode() not in dumped
    logs = b"".join(path.read_bytes() for path in shared_network.log_dir.glob("*"))
    assert marker.encode() not in logs


def test_unknown_fields_are_named(shared_network: Network) -> None:
    body = {"model": shared_network.model, "input": "Hi", "max_output_tokens": LIMIT, "novel": 1, "truncation": "auto"}
    reply = ask(shared_network, "POST", "/v1/responses", body)
    assert reply.headers["x-sparewatt-ignored-params"] == "truncation, novel"
