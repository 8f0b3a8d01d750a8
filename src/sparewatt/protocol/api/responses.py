"""`/v1/responses`, in OpenAI's shapes. `protocol/responses/` builds the response object, in this form."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponseError(msgspec.Struct, frozen=True, kw_only=True):
    code: Literal["rate_limit_exceeded", "invalid_prompt", "server_error"]
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    reason: Literal["max_output_tokens", "content_filter"]


class ResponseText(msgspec.Struct, frozen=True, kw_only=True):
    format: dict[str, Any]
    """Of the type `text`, `json_object` or `json_schema`."""
    verbosity: Literal["low", "medium", "high"] | UnsetType = UNSET
    """As in the request; without effect."""


class ResponseReasoning(msgspec.Struct, frozen=True, kw_only=True):
    effort: str | None
    summary: str | None
    """Always None: nodes write no summaries of reasoning."""


class InputTokenDetails(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokenDetails(msgspec.Struct, frozen=True, kw_only=True):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: OutputTokenDetails
    total_tokens: int
    cost: float | UnsetType = UNSET
    """In dollars. Absent on a network without billing."""


class ConversationId(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """A response in its current state. A field that the request did not set has its default here."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    """Unix seconds."""
    completed_at: int | None
    """Unix seconds; None unless its status is `completed`."""
    status: ResponseStatus
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: list[dict[str, Any]]
    """Items of the type `message`, `reasoning` or `function_call`."""
    tools: list[dict[str, Any]]
    """Functions only; tools of other types are dropped, and the reply's headers name them."""
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    max_tool_calls: int | None
    text: ResponseText
    reasoning: ResponseReasoning
    truncation: Literal["disabled"]
    max_output_tokens: int | None
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    usage: ResponseUsage | None
    """None until the response is final."""
    store: bool
    """Whether it is stored for 24 h, sealed under the API key. One for an hour is not."""
    background: bool
    service_tier: Literal["default"]
    metadata: dict[str, str]
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    conversation: ConversationId | UnsetType = UNSET
    """That it went on from and was added to."""


class ResponseDeletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class ResponseItemList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the items that a response was made from."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    """The next page begins after it (`?after=`)."""
    has_more: bool


class CompactionItem(msgspec.Struct, frozen=True, kw_only=True):
    """Replaces a whole conversation in the `input` of a later request."""

    id: str
    type: Literal["compaction"] = "compaction"
    encrypted_content: str
    """Sealed under the API key: no other key opens it."""


class ResponseCompaction(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int
    """Unix seconds."""
    output: list[CompactionItem]
    """One item."""
    usage: ResponseUsage | None
    """Of the summary, which a model writes."""


class InputTokenCount(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int
    """Estimated from bytes."""
