"""The shapes of the Open Responses specification, as far as a gateway sends them, in our own words.

Stricter than OpenAI's own: every field of a response must be there, and be of its type; so must those of each event.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

Json = dict[str, Any]


class OutputText(Struct, tag="output_text", tag_field="type"):
    text: str
    annotations: list[Json]
    logprobs: list[Json] = []


class InputText(Struct, tag="input_text", tag_field="type"):
    text: str


class Refusal(Struct, tag="refusal", tag_field="type"):
    refusal: str


class ReasoningText(Struct, tag="reasoning_text", tag_field="type"):
    text: str


class InputImage(Struct, tag="input_image", tag_field="type"):
    image_url: str | None
    detail: Literal["low", "high", "auto"]


Part = OutputText | InputText | Refusal | ReasoningText | InputImage
Status = Literal["in_progress", "completed", "incomplete"]


class Message(Struct, tag="message", tag_field="type"):
    id: str
    status: Status
    role: Literal["user", "assistant", "system", "developer"]
    content: list[Part]
    phase: Literal["commentary", "final_answer"] | msgspec.UnsetType = msgspec.UNSET


class FunctionCall(Struct, tag="function_call", tag_field="type"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class FunctionOutput(Struct, tag="function_call_output", tag_field="type"):
    id: str
    call_id: str
    output: str | list[Part]
    status: Status


class Reasoning(Struct, tag="reasoning", tag_field="type"):
    id: str
    summary: list[Json]
    content: list[Part] = []


class Compaction(Struct, tag="compaction", tag_field="type"):
    id: str
    encrypted_content: str


Item = Message | FunctionCall | FunctionOutput | Reasoning | Compaction


class FunctionTool(Struct):
    type: Literal["function"]
    name: str
    description: str | None
    parameters: Json | None
    strict: bool | None


class TextFormat(Struct):
    type: Literal["text", "json_object", "json_schema"]


class Text(Struct):
    format: TextFormat


class Effort(Struct):
    effort: str | None
    summary: str | None


class Why(Struct):
    reason: str


class Failure(Struct):
    code: str
    message: str


class Cached(Struct):
    cached_tokens: int


class Reasoned(Struct):
    reasoning_tokens: int


class Usage(Struct):
    input_tokens: int
    input_tokens_details: Cached
    output_tokens: int
    output_tokens_details: Reasoned
    total_tokens: int


class Resource(Struct):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    incomplete_details: Why | None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: list[Item]
    error: Failure | None
    tools: list[FunctionTool]
    tool_choice: Literal["auto", "none", "required"] | Json
    truncation: Literal["auto", "disabled"]
    parallel_tool_calls: bool
    text: Text
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    temperature: float
    reasoning: Effort | None
    usage: Usage | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: Json
    safety_identifier: str | None
    prompt_cache_key: str | None
    user: str | msgspec.UnsetType = msgspec.UNSET
    """As OpenAI has it: never null."""


class CompactResource(Struct):
    id: str
    object: Literal["response.compaction"]
    output: list[Item]
    created_at: int
    usage: Usage


class _Event(Struct, tag_field="type"):
    sequence_number: int


class Created(_Event, tag="response.created"):
    response: Resource


class InProgress(_Event, tag="response.in_progress"):
    response: Resource


class Completed(_Event, tag="response.completed"):
    response: Resource


class Incomplete(_Event, tag="response.incomplete"):
    response: Resource


class Failed(_Event, tag="response.failed"):
    response: Resource


class ItemAdded(_Event, tag="response.output_item.added"):
    output_index: int
    item: Item


class ItemDone(_Event, tag="response.output_item.done"):
    output_index: int
    item: Item


class _InItem(_Event):
    item_id: str
    output_index: int


class _InPart(_InItem):
    content_index: int


class PartAdded(_InPart, tag="response.content_part.added"):
    part: Part


class PartDone(_InPart, tag="response.content_part.done"):
    part: Part


class TextDelta(_InPart, tag="response.output_text.delta"):
    delta: str
    logprobs: list[Json]


class TextDone(_InPart, tag="response.output_text.done"):
    text: str
    logprobs: list[Json]


class ArgumentsDelta(_InItem, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_InItem, tag="response.function_call_arguments.done"):
    arguments: str


Event = (
    Created
    | InProgress
    | Completed
    | Incomplete
    | Failed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | ArgumentsDelta
    | ArgumentsDone
)


def read_resource(body: bytes) -> Resource:
    """Raises ValidationError, naming what is missing or wrong."""
    return msgspec.json.decode(body, type=Resource)


def read_stream(body: bytes) -> list[Event]:
    """Every event of a stream, each of its own shape and named in its first line; the end mark is the last line."""
    blocks = [block for block in body.split(b"\n\n") if block and not block.startswith(b":")]
    assert blocks.pop() == b"data: [DONE]"
    events: list[Event] = []
    for number, block in enumerate(blocks):
        name, data = block.split(b"\n")
        event: Event = msgspec.json.decode(data.removeprefix(b"data: "), type=Event)
        assert event.sequence_number == number
        assert name == b"event: " + type(event).__struct_config__.tag.encode()  # type: ignore[union-attr]
        events.append(event)
    return events


class SocketErrorBody(Struct):
    code: str
    message: str
    param: str | None = None


class SocketError(Struct, tag="error", tag_field="type"):
    """The envelope of an error on a WebSocket."""

    status: int
    error: SocketErrorBody


def read_event(text: str) -> Event | SocketError:
    """One message of a socket, of its own shape."""
    if msgspec.json.decode(text)["type"] == "error":
        return msgspec.json.decode(text, type=SocketError)
    event: Event = msgspec.json.decode(text, type=Event)
    return event
