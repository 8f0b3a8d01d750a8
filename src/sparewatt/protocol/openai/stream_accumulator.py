"""Puts a whole answer together from the events of a streamed one.

Some model servers notice a closed connection only when they write. Asked for a whole answer, they would compute for
minutes after the client has gone; a stream they stop at once. And of a whole answer nobody sees a first token. So a
gateway requests a stream for every job, and the client still gets the whole answer it requested; a node does the same
for a gateway that asks it for a whole one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sparewatt.core.limits import REPLY_BODY_BYTES_MAX
from sparewatt.protocol.link.frames import JobPath

_text_decoder = msgspec.json.Decoder(str)
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields of a delta whose pieces are joined; of any other field the last value counts."""


def can_be_streamed(path: JobPath, body: bytes | bytearray) -> bool:
    """Not embeddings, and not completions with `best_of`."""
    return path != "/v1/embeddings" and not (path == "/v1/completions" and b'"best_of"' in body)


class BrokenStream(Exception):
    """What was streamed is no answer. The message is our own, whatever the server sent."""


class ErrorEvent(BrokenStream):
    """The server reported an error in place of a chunk."""


class StreamAccumulator:
    """Add the data of each event; `body` is the answer that the server would have given without streaming."""

    def __init__(self, *, prompts: int = 1) -> None:
        """`prompts`: how many the request has; a chat is one."""
        self._prompts = prompts
        self._size_bytes = 0
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._done = False
        self._completion_tokens = 0
        self._prompt_tokens: list[int] = []
        """By text."""
        self.has_output = False
        """Whether anything of the answer has come: not its role alone."""

    def add(self, event: bytes) -> None:
        """Raises BrokenStream."""
        self._size_bytes += len(event)
        if self._size_bytes > REPLY_BODY_BYTES_MAX * 4:
            raise BrokenStream("the model server's answer is over the limit")
        if event == b"[DONE]":
            self._done = True
        elif event != b"null":  # llama.cpp streams it now and then, with several texts
            self._read_chunk(event)

    def add_text(self, field: str, inside: bytes | bytearray) -> None:
        """More text for a field of the first choice's message, of which a chunk was added before.

        `inside` is that of a JSON string. Raises BrokenStream.
        """
        self._size_bytes += len(inside)
        if self._size_bytes > REPLY_BODY_BYTES_MAX * 4:
            raise BrokenStream("the model server's answer is over the limit")
        try:
            text = _text_decoder.decode(b'"' + inside + b'"')
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise BrokenStream("the model server streams something that is no chunk") from None
        _merge_delta(self._choices[0]["message"], {field: text})

    def body(self) -> bytes:
        if not self._done:
            raise BrokenStream("the model server's stream ended early")
        choices = [self._choices[index] for index in sorted(self._choices)]
        kind = self._top.get("object")
        whole = kind if kind == "text_completion" else "chat.completion"
        return msgspec.json.encode(self._top | {"object": whole, "choices": choices})

    def _read_chunk(self, data: bytes) -> None:
        try:
            chunk: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BrokenStream("the model server streams something that is no chunk") from None
        if chunk.get("error") is not None:
            raise ErrorEvent("the model server reported an error in its stream")
        choices = chunk.pop("choices", None) or ()
        try:
            for choice in choices:
                self._read_choice(choice)
            if chunk.get("usage") is not None:
                chunk["usage"] = self._total_usage(chunk["usage"], choices)
        except (AttributeError, KeyError, TypeError):  # numbers where objects should be, and the like
            raise BrokenStream("the model server streams something that is no chunk") from None
        self._top |= {name: value for name, value in chunk.items() if value is not None}

    def _total_usage(self, usage: dict[str, Any], choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """With several texts some servers count each separately: at the end of all, or of each text."""
        ends_text = any("text" in choice and choice.get("finish_reason") for choice in choices)
        if choices and not ends_text:
            return usage
        self._completion_tokens += usage["completion_tokens"]
        self._prompt_tokens.append(usage["prompt_tokens"])
        prompt = usage["prompt_tokens"]
        if ends_text:  # each prompt counts once, however many texts were written for it
            texts = len(self._prompt_tokens)
            prompt = sum(self._prompt_tokens) * min(self._prompts, texts) // texts
        completion = self._completion_tokens
        return usage | {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def _read_choice(self, choice: dict[str, Any]) -> None:
        index = choice.get("index", 0)
        if "text" in choice:
            whole = self._choices.setdefault(
                index, {"index": index, "text": "", "logprobs": None, "finish_reason": None}
            )
            whole["text"] += choice["text"] or ""
            self.has_output |= bool(choice["text"])
        else:
            message = {"role": "assistant", "content": None, "refusal": None}
            new = {"index": index, "message": message, "logprobs": None, "finish_reason": None}
            whole = self._choices.setdefault(index, new)
            delta = choice.get("delta") or {}
            _merge_delta(whole["message"], delta)
            self.has_output |= any(value for name, value in delta.items() if name != "role")
        if choice.get("logprobs") is not None:
            _merge_logprobs(whole, choice["logprobs"])
        if choice.get("finish_reason") is not None:
            whole["finish_reason"] = choice["finish_reason"]
            self.has_output = True


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if value is None:
            message.setdefault(name, None)
        elif name in _TEXT_FIELDS:
            message[name] = (message.get(name) or "") + value
        elif name == "tool_calls":
            _merge_tool_calls(message.setdefault("tool_calls", []), value)
        else:
            message[name] = value


def _merge_tool_calls(calls: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> None:
    """The name of a call comes once, its arguments in pieces; `index` is the call of a piece."""
    for piece in pieces:
        index = piece.get("index", len(calls))
        if index >= len(calls):
            calls.append({"function": {"name": "", "arguments": ""}})
        call = calls[min(index, len(calls) - 1)]
        function = piece.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""
        call |= {name: value for name, value in piece.items() if name not in ("index", "function") and value}


def _merge_logprobs(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    merged = whole["logprobs"] = whole.get("logprobs") or {}
    for name, values in piece.items():
        if isinstance(values, list):
            merged[name] = (merged.get(name) or []) + values
        else:
            merged.setdefault(name, values)
