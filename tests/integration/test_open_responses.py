"""What the Open Responses compliance suite asks over HTTP, asked here: the same requests in kind, the same judgement.

The suite itself runs under another language's tools, from a repository; `docs/reference/responses.md` says how. Its
tests over WebSocket have no counterpart: there is no such door here.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.integration.asking import Reply, ask
from tests.integration.networks import Network
from tests.integration.open_responses import (
    Compaction,
    CompactResource,
    Completed,
    FunctionCall,
    Message,
    Resource,
    TextDelta,
    read_resource,
    read_stream,
)

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather at a place, now.",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


def said(role: str, content: object, **more: object) -> dict[str, object]:
    return {"type": "message", "role": role, "content": content, **more}


def post(network: Network, *items: dict[str, object], path: str = "/v1/responses", **more: Any) -> Reply:
    reply = ask(network, "POST", path, {"model": network.model, "input": list(items), **more})
    assert reply.status == 200, reply.body
    return reply


def respond(network: Network, *items: dict[str, object], **more: Any) -> Resource:
    """A response that is complete and has something in it."""
    response = read_resource(post(network, *items, stream=False, **more).body)
    assert response.status == "completed"
    assert response.output
    return response


def test_a_simple_message_gets_a_response_with_every_field(shared_network: Network) -> None:
    response = respond(shared_network, said("user", "Say hello in three words."))
    assert isinstance(response.output[0], Message)
    assert not response.store


def test_a_stream_has_events_of_their_shapes_and_ends_in_the_response(shared_network: Network) -> None:
    events = read_stream(post(shared_network, said("user", "Count from 1 to 5."), stream=True).body)
    last = events[-1]
    assert isinstance(last, Completed)
    text = "".join(event.delta for event in events if isinstance(event, TextDelta))
    (message,) = last.response.output
    assert isinstance(message, Message)
    assert message.content[0].text == text  # type: ignore[union-attr]


def test_a_message_of_the_system_is_taken(shared_network: Network) -> None:
    respond(shared_network, said("system", "You are a pirate."), said("user", "Say hello."))


def test_a_function_is_called(shared_network: Network) -> None:
    reply = post(shared_network, said("user", "What is the weather in San Francisco?"), tools=[WEATHER])
    (call,) = read_resource(reply.body).output
    assert isinstance(call, FunctionCall)
    assert msgspec.json.decode(call.arguments, type=dict[str, str]).keys() == {"location"}


def test_a_function_is_called_in_a_stream(shared_network: Network) -> None:
    reply = post(shared_network, said("user", "What is the weather in Rome?"), tools=[WEATHER], stream=True)
    last = read_stream(reply.body)[-1]
    assert isinstance(last, Completed)
    assert isinstance(last.response.output[0], FunctionCall)


def test_a_picture_is_taken(shared_network: Network) -> None:
    parts = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PIXEL}]
    respond(shared_network, said("user", parts))


def test_a_conversation_is_sent_as_it_went(shared_network: Network) -> None:
    history = [said("user", "My name is Alice."), said("assistant", "Hello Alice!"), said("user", "What is my name?")]
    respond(shared_network, *history)


@pytest.mark.parametrize("phase", ["commentary", "final_answer"])
def test_an_assistant_s_message_may_say_which_phase_it_belongs_to(shared_network: Network, phase: str) -> None:
    looked = said("assistant", [{"type": "output_text", "text": "I will look.", "annotations": []}], phase=phase)
    respond(shared_network, said("user", "Look."), looked, said("user", "And?"))


def test_a_conversation_is_compacted(shared_network: Network) -> None:
    history = [said("user", "My name is Alice."), said("assistant", "Hello Alice!")]
    reply = post(shared_network, *history, path="/v1/responses/compact")
    compacted = msgspec.json.decode(reply.body, type=CompactResource)
    assert isinstance(compacted.output[-1], Compaction)
    assert compacted.usage.total_tokens > 0


def test_a_compacted_conversation_goes_on(shared_network: Network) -> None:
    history = [said("user", "My name is Alice."), said("assistant", "Hello Alice!")]
    compacted = post(shared_network, *history, path="/v1/responses/compact").json()["output"]
    respond(shared_network, *compacted, said("user", "What is my name?"))
