"""What the Open Responses compliance suite asks, asked here: the same requests in kind, the same judgement.

The suite itself runs under another language's tools, from a repository; `docs/reference/responses.md` says how.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.integration.asking import Reply, ask
from tests.integration.networks import Network
from tests.integration.open_responses import (
    Compaction,
    CompactResource,
    Completed,
    Event,
    FunctionCall,
    Message,
    Resource,
    SocketError,
    TextDelta,
    read_event,
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


# over a WebSocket

SOCKET_S = 30.0
Turn = dict[str, Any] | Callable[[list[Event | SocketError]], dict[str, Any]]
"""A request, or what makes one from the ends of the turns before."""


def converse(network: Network, *turns: Turn) -> list[Event | SocketError]:
    """The last event of each turn on one socket; all events before it have their shapes."""
    return asyncio.run(_converse(network, turns))


async def _converse(network: Network, turns: tuple[Turn, ...]) -> list[Event | SocketError]:
    ends: list[Event | SocketError] = []
    headers = {"authorization": f"Bearer {network.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{network.base_url}/responses", headers=headers) as ws,
    ):
        for turn in turns:
            asked = turn(ends) if callable(turn) else turn
            await ws.send_json({"type": "response.create", "model": network.model, **asked})
            ends.append(await _end_of_turn(ws))
    return ends


async def _end_of_turn(ws: aiohttp.ClientWebSocketResponse) -> Event | SocketError:
    number = 0
    while True:
        event = read_event(await ws.receive_str(timeout=SOCKET_S))
        if isinstance(event, SocketError):
            return event
        assert event.sequence_number == number
        number += 1
        if isinstance(event, Completed):
            return event


def unkept(text: str, **more: Any) -> dict[str, Any]:
    return {"store": False, "input": text, **more}


def goes_on(asked: object) -> Turn:
    """From the first turn."""

    def ask_next(ends: list[Event | SocketError]) -> dict[str, Any]:
        assert isinstance(ends[0], Completed)
        return {"store": False, "input": asked, "previous_response_id": ends[0].response.id}

    return ask_next


def codes(ends: list[Event | SocketError]) -> list[str | None]:
    return [end.error.code if isinstance(end, SocketError) else None for end in ends]


def test_a_socket_has_the_events_of_a_stream(shared_network: Network) -> None:
    (end,) = converse(shared_network, {"input": [said("user", "Count from 1 to 3.")]})
    assert isinstance(end, Completed)
    assert isinstance(end.response.output[0], Message)


def test_responses_follow_one_another_on_a_socket(shared_network: Network) -> None:
    ends = converse(shared_network, unkept("first"), unkept("second"))
    assert codes(ends) == [None, None]


def test_what_is_not_stored_goes_on_on_its_socket(shared_network: Network) -> None:
    ends = converse(shared_network, unkept("The code word is cobalt."), goes_on("What is it?"))
    assert codes(ends) == [None, None]


def test_what_is_not_stored_is_gone_on_another_socket_which_still_works(shared_network: Network) -> None:
    (first,) = converse(shared_network, unkept("The code word is copper."))
    assert isinstance(first, Completed)
    again = unkept("What is it?", previous_response_id=first.response.id)
    assert codes(converse(shared_network, again, unkept("Hi"))) == ["previous_response_not_found", None]


def test_a_previous_response_that_never_was_is_not_found(shared_network: Network) -> None:
    ends = converse(shared_network, unkept("Hi", previous_response_id="resp_missing"))
    assert codes(ends) == ["previous_response_not_found"]


def test_a_failed_continuation_forgets_what_it_went_on_from(shared_network: Network) -> None:
    stray = [{"type": "function_call_output", "call_id": "call_missing", "output": "none"}]
    ends = converse(shared_network, unkept("The code word is ember."), goes_on(stray), goes_on("What is it?"))
    assert codes(ends) == [None, "invalid_value", "previous_response_not_found"]


def test_a_compacted_conversation_begins_a_new_chain(shared_network: Network) -> None:
    history = [said("user", "My name is Alice."), said("assistant", "Hello Alice!")]
    compacted = post(shared_network, *history, path="/v1/responses/compact").json()["output"]
    ends = converse(shared_network, {"store": False, "input": [*compacted, said("user", "What is my name?")]})
    assert codes(ends) == [None]
