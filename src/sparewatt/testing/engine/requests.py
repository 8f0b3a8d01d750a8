"""Request bodies as msgspec structs, of OpenAI's endpoints and of llama.cpp's.

Fields that do not change a deterministic answer (temperature, penalties …) are validated as OpenAI does and otherwise
ignored, like every unknown field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Role = Literal["developer", "system", "user", "assistant", "tool", "function"]
Choices = Annotated[int, Meta(ge=1, le=128)]
MaxTokens = Annotated[int, Meta(ge=-1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(ge=0, le=1)]
StopText = Annotated[str, Meta(min_length=1)]
StopTexts = Annotated[list[StopText], Meta(max_length=16)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
TokenIds = list[int]


class ContentPart(Struct, frozen=True):
    """One part of a message. Only text enters the prompt; of other parts, their type."""

    type: str
    text: str = ""


class PastFunctionCall(Struct, frozen=True):
    name: str
    arguments: str


class PastToolCall(Struct, frozen=True):
    """A tool call in an earlier assistant message."""

    id: str
    function: PastFunctionCall


class EngineMessage(Struct, frozen=True):
    role: Role
    content: str | list[ContentPart] | None = None
    tool_calls: list[PastToolCall] | None = None


class FunctionDefinition(Struct, frozen=True):
    name: str
    parameters: dict[str, Any] | None = None


class ToolDefinition(Struct, frozen=True):
    type: str
    function: FunctionDefinition | None = None


class NamedFunction(Struct, frozen=True):
    name: str


class NamedTool(Struct, frozen=True):
    function: NamedFunction


class AllowedTools(Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: list[NamedTool]


class ToolChoice(Struct, frozen=True):
    """A tool picked by name, or a subset of the tools."""

    type: Literal["function", "allowed_tools"]
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None


class JsonSchema(Struct, frozen=True):
    name: str
    schema: dict[str, Any] = field(default_factory=dict)


class ResponseFormat(Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class EngineStreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """The common fields of chats and raw completions."""

    model: str
    stream: bool | None = None
    stream_options: EngineStreamOptions | None = None
    max_tokens: MaxTokens | None = None
    n: Choices | None = None
    stop: StopText | StopTexts | None = None
    seed: int | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    ignore_eos: bool | None = None


class EngineChatRequest(GenerateRequest, frozen=True, kw_only=True):
    messages: Annotated[list[EngineMessage], Meta(min_length=1)]
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None


class EngineCompletionRequest(GenerateRequest, frozen=True, kw_only=True):
    prompt: str | list[str | int | TokenIds]
    echo: bool | None = None
    logprobs: TopLogprobs | None = None


class EngineEmbeddingRequest(Struct, frozen=True, kw_only=True):
    model: str
    input: str | list[str | int | TokenIds]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1, le=4096)] | None = None


class TemplateRequest(Struct, frozen=True):
    messages: Annotated[list[EngineMessage], Meta(min_length=1)]


class TokenizeRequest(Struct, frozen=True):
    content: str
