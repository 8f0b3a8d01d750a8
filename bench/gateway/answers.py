"""Answers of the fake nodes: byte for byte those of `backend.c`, with the same rules for rate and length."""

from __future__ import annotations

import msgspec

TOKENS = 64
"""Length of every streamed answer. `max_tokens` above it sets the milliseconds between two tokens."""
WHOLE_TOKENS = 16
BYTES_PER_TOKEN = 4

_CHUNK = (
    b'data: {"id":"chatcmpl-7d0c5bb1a2f94b6d","object":"chat.completion.chunk","created":1790000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{%b},"logprobs":null,"finish_reason":%b}]}\n\n'
)
_FIRST, _NEXT = (_CHUNK % (role + b'"content":" @%d"', b"null") for role in (b'"role":"assistant",', b""))
_STOP = _CHUNK % (b"", b'"stop"')
_USAGE = (
    b'data: {"id":"chatcmpl-7d0c5bb1a2f94b6d","object":"chat.completion.chunk","created":1790000000,"model":"m",'
    b'"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}\n\n'
)
_DONE = b"data: [DONE]\n\n"
_WHOLE = (
    b'{"id":"chatcmpl-7d0c5bb1a2f94b6d","object":"chat.completion","created":1790000000,"model":"m","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"Sixteen tokens of an answer that nobody had to think '
    b'about, always the same."},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,'
    b'"total_tokens":%d,"completion_tokens":%d}}'
)


class _Options(msgspec.Struct):
    include_usage: bool = False


class FakeRequest(msgspec.Struct):
    """The fields of a request on which the answer depends."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool = False
    stream_options: _Options | None = None

    @property
    def pace_ms(self) -> int:
        return max(0, (self.max_completion_tokens or self.max_tokens or TOKENS) - TOKENS)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


read_request = msgspec.json.Decoder(FakeRequest).decode


def prompt_tokens(body_bytes: int) -> int:
    return body_bytes // BYTES_PER_TOKEN


def first_token(made_ns: int) -> bytes:
    return _FIRST % made_ns


def next_token(made_ns: int) -> bytes:
    return _NEXT % made_ns


def stream_end(prompt: int, *, wants_usage: bool) -> bytes:
    return _STOP + (_USAGE % (prompt, prompt + TOKENS, TOKENS) if wants_usage else b"") + _DONE


def whole(prompt: int) -> bytes:
    return _WHOLE % (prompt, prompt + WHOLE_TOKENS, WHOLE_TOKENS)
