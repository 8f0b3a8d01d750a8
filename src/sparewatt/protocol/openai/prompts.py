"""Requests for text completions and embeddings. Their texts come as strings or as token ids."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sparewatt.core.errors import BodyTooLarge, InvalidField, InvalidJson
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import (
    AnswerCount,
    ModelChoice,
    ModelField,
    StreamOptions,
    TokenCount,
    parse_body,
)

PROMPTS_MAX = 2048
"""Texts of one request: OpenAI's own bound."""
LOGPROBS_MAX = 20
"""Likeliest tokens that are told of each token: OpenAI's bound for chats. For texts it has 5, servers allow more."""
_TokenId = Annotated[int, Meta(ge=0, le=1 << 31)]
_Ids = Annotated[list[_TokenId], Meta(min_length=1)]
Texts = str | Annotated[list[str | _TokenId | _Ids], Meta(min_length=1)]

MAX_TOKENS_UNASKED = 16
"""OpenAI's default for a text completion. Servers' defaults differ, and some have no limit."""


class PromptInputs(msgspec.Struct, frozen=True):
    """The texts of one request."""

    strings: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    """How many token ids each text that is given as ids has."""

    @property
    def count(self) -> int:
        return len(self.strings) + len(self.ids)


class CompletionRequest(msgspec.Struct, frozen=True):
    prompt: Texts
    model: ModelField | UnsetType = UNSET
    models: ModelChoice | UnsetType | None = UNSET
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenCount | None = None
    n: AnswerCount | None = None
    best_of: Annotated[int, Meta(ge=0, le=128)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)] | None = None
    provider: msgspec.Raw = msgspec.Raw(b"")

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class EmbeddingRequest(msgspec.Struct, frozen=True):
    model: ModelField
    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=1 << 16)] | None = None
    provider: msgspec.Raw = msgspec.Raw(b"")


_completion_decoder = msgspec.json.Decoder(CompletionRequest)
_embedding_decoder = msgspec.json.Decoder(EmbeddingRequest)


def parse_completion(body: bytes) -> tuple[CompletionRequest, PromptInputs]:
    """Raises InvalidJson, InvalidField or BodyTooLarge."""
    request = parse_body(_completion_decoder, body)
    return request, prompt_inputs(request.prompt, param="prompt")


def parse_embedding(body: bytes) -> tuple[EmbeddingRequest, PromptInputs]:
    """Raises InvalidJson, InvalidField or BodyTooLarge."""
    request = parse_body(_embedding_decoder, body)
    return request, prompt_inputs(request.input, param="input")


def count_prompts(path: JobPath, body: bytes) -> int:
    """How many prompts a request for text completions has; 1 for any other request."""
    if path != "/v1/completions":
        return 1
    try:
        return parse_completion(body)[1].count
    except (InvalidField, InvalidJson, BodyTooLarge):
        return 1  # the model server reports what is wrong with it


def prompt_inputs(texts: Texts, *, param: str) -> PromptInputs:
    """A string, a list of them, one list of token ids, or a list of such lists. Raises InvalidField."""
    if isinstance(texts, str):
        return PromptInputs((texts,))
    strings = tuple(text for text in texts if isinstance(text, str))
    ids = tuple(len(text) for text in texts if isinstance(text, list))
    is_one_prompt = not strings and not ids
    if not is_one_prompt and len(texts) not in (len(strings), len(ids)):
        raise InvalidField(f"'{param}' must not mix texts with token ids.", param=param)
    if not is_one_prompt and len(texts) > PROMPTS_MAX:
        raise InvalidField(f"'{param}' may hold {PROMPTS_MAX} entries at most.", param=param)
    return PromptInputs(ids=(len(texts),)) if is_one_prompt else PromptInputs(strings, ids)
