"""Why an attempt failed, from a closed list: what a client, a log, the books and an explanation may hear of it.

The texts of a model server and of a node agent are words of strangers. Here they are read, and never repeated:
`classify` turns an error reply into an `ErrorCode` by its status, its `code` and `type`, and the wording of the servers
that exist. Everything that is told has a sentence of our own. Pure.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    SparewattError,
    UnprocessableContent,
    UnsupportedContent,
    UnsupportedMediaType,
    UnsupportedParameter,
)
from sparewatt.protocol.link.frames import FailCode
from sparewatt.protocol.openai.chat import TOKENS_MAX

TEXT_CHARS_MAX = 4_096
"""What is read of an error's text; the servers' own are shorter."""

CLIENTS_FAULT = (400, 413, 415, 422)
"""HTTP statuses of a model server that put the request at fault. All others are the node's."""
NOT_NOW = (429, 503)
"""The model server is full or still loading."""


class ContextTooLong(BadRequest):
    code = "context_length_exceeded"


def context_too_long(model: str, *, context_tokens: int) -> ContextTooLong:
    """Worded as OpenAI does: clients know it by its code, or by these words. LangChain looks for two of them in the
    text, LiteLLM for how it begins.

    `context_tokens`: the model's longest context here; 0 if unknown.
    """
    size = f"{context_tokens} tokens" if context_tokens else "less than this request needs"
    return ContextTooLong(
        f"This model's maximum context length is {size}. Prompt and answer together: the request exceeds the context "
        f"window of every node that serves {model!r} (context_length_exceeded). Shorten the prompt or lower max_tokens."
    )


class RefusedByServer(BadRequest):
    """Model servers rejected the request itself."""


class ErrorCode(enum.Enum):
    """What a model server's error is about."""

    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    UNSUPPORTED_CONTENT = "unsupported_content"
    INVALID_SCHEMA = "invalid_schema"
    TOO_LARGE = "too_large"
    UNSUPPORTED_MEDIA = "unsupported_media"
    UNPROCESSABLE = "unprocessable"
    BAD_REQUEST = "bad_request"
    MODEL_MISSING = "model_missing"
    OVERLOADED = "overloaded"
    OUT_OF_MEMORY = "out_of_memory"
    SERVER_ERROR = "server_error"


FEATURES = (ErrorCode.UNSUPPORTED_PARAMETER, ErrorCode.UNSUPPORTED_CONTENT, ErrorCode.INVALID_SCHEMA)
"""In these, honest servers of different kinds differ."""

_BY_NAME = {
    "context_length_exceeded": ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    "exceed_context_size_error": ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    "unsupported_parameter": ErrorCode.UNSUPPORTED_PARAMETER,
    "unsupported_content": ErrorCode.UNSUPPORTED_CONTENT,
    "invalid_json_schema": ErrorCode.INVALID_SCHEMA,
    "invalid_schema": ErrorCode.INVALID_SCHEMA,
    "model_not_found": ErrorCode.MODEL_MISSING,
}
"""By the `code` or `type` of an error: OpenAI's, llama.cpp's."""

_CONTEXT = (
    "maximum context length",
    "context length",
    "context size",
    "context window",
    "max_model_len",
    "longer than the model",
    "exceeds the model's",
    "too many tokens",
    "prompt is too long",
    "prompt too long",
    "maximum model length",
)
_CACHE_FULL = "context size has been exceeded"
"""llama.cpp's, with status 500, where all slots share one KV cache and the others' answers have filled it."""
_STATED_CONTEXT = (
    re.compile(r"maximum (?:context|model) length (?:is|of) (\d{1,9})\b"),
    re.compile(r"context (?:size|length) \((\d{1,9}) tokens\)"),
    re.compile(r"context length of only (\d{1,9}) tokens"),
)
"""The context's size in the texts of vLLM and SGLang, of llama.cpp and SGLang, of LM Studio."""
_SCHEMA = ("json schema", "json_schema", "response_format", "grammar", "guided decoding", "structured output")
_CONTENT = ("image", "audio", "video", "multimodal", "multi-modal", "mmproj", "vision")
_PARAMETER = (
    "not supported",
    "unsupported",
    "does not support",
    "not support",
    "unknown parameter",
    "unrecognized",
    "extra inputs are not permitted",
    "not implemented",
    "requires --",
)
_MEMORY = ("out of memory", "cuda oom", "failed to allocate", "insufficient memory")
"""How vLLM, SGLang, llama.cpp and Ollama word these, in lower case."""

_BY_STATUS = {
    413: ErrorCode.TOO_LARGE,
    415: ErrorCode.UNSUPPORTED_MEDIA,
    404: ErrorCode.MODEL_MISSING,
    429: ErrorCode.OVERLOADED,
    503: ErrorCode.OVERLOADED,
}


class ServerError(NamedTuple):
    """A model server's error reply, as far as it is told."""

    status: int
    code: ErrorCode
    digest: bytes = b""
    """Of its text: whether two servers said the same is known without keeping what."""
    context_tokens: int = 0
    """The size of its context, where an overflow's text has it."""

    @property
    def reason(self) -> str:
        return f"status {self.status}: {self.code.value}"

    @property
    def is_clients_fault(self) -> bool:
        """Older versions of Ollama give a 500 for an overflow."""
        return self.status in CLIENTS_FAULT or (self.status == 500 and self.code is ErrorCode.CONTEXT_LENGTH_EXCEEDED)


def classify(status: int, body: bytes) -> ServerError:
    """Read an error reply, in any of the shapes that servers use."""
    return _error(status, *_names_and_text(body))


def classify_event(data: bytes) -> ServerError:
    """Read an error event inside a stream: servers put the status into its `code`. LM Studio gives none."""
    names, text = _names_and_text(data)
    stated = next((int(name) for name in names if name.isascii() and name.isdigit() and len(name) == 3), None)
    unstated = 400 if _by_wording(text.lower()) is ErrorCode.CONTEXT_LENGTH_EXCEEDED else 500
    return _error(unstated if stated is None else stated, names, text)


def error_event_reason(error: ServerError) -> str:
    """What is told of an error event."""
    return f"the model server reported an error in its answer ({error.code.value})"


def _error(status: int, names: list[str], text: str) -> ServerError:
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
    code = _code(status, names, text.lower())
    stated = _stated_context(text.lower()) if code is ErrorCode.CONTEXT_LENGTH_EXCEEDED else 0
    return ServerError(status, code, digest, stated)


def _stated_context(text: str) -> int:
    found = next((match for pattern in _STATED_CONTEXT if (match := pattern.search(text))), None)
    return min(int(found[1]), TOKENS_MAX) if found else 0


def _names_and_text(body: bytes) -> tuple[list[str], str]:
    try:
        reply: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [], ""
    if isinstance(reply, Mapping):
        reply = reply.get("error", reply)
    if isinstance(reply, str):
        return [], reply[:TEXT_CHARS_MAX]
    if not isinstance(reply, Mapping):
        return [], ""
    names = [str(reply[name])[:64] for name in ("code", "type") if isinstance(reply.get(name), str | int)]
    text = reply.get("message", reply.get("detail"))
    if not isinstance(text, str):
        text = "" if text is None else msgspec.json.encode(text).decode()  # FastAPI's list of what is wrong
    return names, text[:TEXT_CHARS_MAX]


def _code(status: int, names: list[str], text: str) -> ErrorCode:
    named = next((_BY_NAME[name] for name in names if name in _BY_NAME), None)
    if named is not None:
        return named
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    worded = _by_shortage(status, text) or _by_wording(text)  # also of a 500: llama.cpp's for a picture it cannot read
    if worded is not None:
        return worded
    if status == 422:
        return ErrorCode.UNPROCESSABLE
    return ErrorCode.BAD_REQUEST if status in CLIENTS_FAULT else ErrorCode.SERVER_ERROR


def _by_shortage(status: int, text: str) -> ErrorCode | None:
    if _has(text, _MEMORY):
        return ErrorCode.OUT_OF_MEMORY
    return ErrorCode.OVERLOADED if status >= 500 and _CACHE_FULL in text else None


def _by_wording(text: str) -> ErrorCode | None:
    if _has(text, _CONTEXT):
        return ErrorCode.CONTEXT_LENGTH_EXCEEDED
    if _has(text, _SCHEMA):
        return ErrorCode.INVALID_SCHEMA
    if _has(text, _CONTENT) and _has(text, _PARAMETER):
        return ErrorCode.UNSUPPORTED_CONTENT
    return ErrorCode.UNSUPPORTED_PARAMETER if _has(text, _PARAMETER) else None


def _has(text: str, patterns: tuple[str, ...]) -> bool:
    return any(pattern in text for pattern in patterns)


def agreed_code(first: ServerError, second: ServerError) -> ErrorCode:
    """Of two that put the request at fault: what both say, the more exact if one says nothing in particular."""
    if first.code is second.code or second.code is ErrorCode.BAD_REQUEST:
        return first.code
    return second.code if first.code is ErrorCode.BAD_REQUEST else ErrorCode.BAD_REQUEST


_SCHEMA_FIELDS = {"json_schema": "response_format", "tools": "tools"}
"""By a capability that a request with a schema needs: the field that has it."""

_ERRORS: Mapping[ErrorCode, tuple[type[SparewattError], str]] = {
    ErrorCode.UNSUPPORTED_PARAMETER: (UnsupportedParameter, "did not take a parameter of the request. Leave it out."),
    ErrorCode.UNSUPPORTED_CONTENT: (UnsupportedContent, "did not take the images or files of the request. Send text."),
    ErrorCode.INVALID_SCHEMA: (
        RefusedByServer,
        "did not take the schema or format of the answer. Check response_format and tools, and their patterns.",
    ),
    ErrorCode.TOO_LARGE: (BodyTooLarge, "did not take a request of this size. Send less."),
    ErrorCode.UNSUPPORTED_MEDIA: (UnsupportedMediaType, "did not take the request's media type. Send plain JSON."),
    ErrorCode.UNPROCESSABLE: (
        UnprocessableContent,
        "understood the request but cannot process it. Check the types and ranges of its fields.",
    ),
}


def request_error(
    code: ErrorCode, model: str, *, context_tokens: int, nodes: int, needs: Collection[str] = ()
) -> SparewattError:
    """For the client, in our words. `context_tokens`: the model's longest context here; 0 if unknown. `needs`: what the
    request needs, which says where its schema is."""
    if code is ErrorCode.CONTEXT_LENGTH_EXCEEDED:
        return context_too_long(model, context_tokens=context_tokens)
    who = "The only model server" if nodes == 1 else f"{nodes} model servers"
    other = f"rejected the request ({code.value}). Check its messages, tools and parameters."
    kind, sentence = _ERRORS.get(code, (RefusedByServer, other))
    param = _SCHEMA_FIELDS.get(next((name for name in _SCHEMA_FIELDS if name in needs), ""))
    error = kind(f"{who} of {model!r} that could take the request {sentence}")
    error.param = param if code is ErrorCode.INVALID_SCHEMA else error.param
    return error


FAIL_SENTENCES: Mapping[FailCode, str] = {
    "refused": "the node did not take the job",
    "leased": "a lease has the node's machine now",
    "backend_unreachable": "its model server does not accept connections",
    "backend_broke": "its model server broke off, or gave an answer that is not valid",
    "backend_timeout": "its model server does not answer any more",
    "link_lost": "the link to the node broke",
    "protocol": "the node had an internal error, or could not read the job",
}
"""What is told of a job that failed at its node, in place of the node's message."""


BROKE_OFF = "protocol: the node broke off an answer without a reason that counts"
"""It refused what it had begun, or named a lease that the chain has not just given it."""


def failure_reason(code: FailCode, *, is_late: bool = False) -> str:
    """`is_late`: it refused because its first token would come later than promised."""
    return f"{code}: {'its first token would come too late' if is_late else FAIL_SENTENCES[code]}"
