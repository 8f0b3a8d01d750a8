"""Which ways a model server has to go on with a text: found out by asking, never assumed.

The server writes a short answer, then is given that answer to go on from, and counts the prompt that it has read. Only
one that takes the text up as it stands counts exactly the tokens of both; one that closes the turn and opens another,
or repeats a template, counts more. That shows with any model, however good or bad it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from sparewatt.node.backends.backend import Backend, BackendTimeout, BadBackendReply
from sparewatt.protocol.link.node_report import Capability
from sparewatt.protocol.openai.continuation import PREFILL, RAW

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TEMPLATE, TOKENIZE = "/apply-template", "/tokenize"
FLAGS = {"continue_final_message": True, "add_generation_prompt": False}
"""What vLLM and SGLang want to be told; others look at the last message's role, or at nothing."""

PROBE_S = 60.0
PROBE_TOKENS = 8
_ANSWER_BYTES_MAX = 1 << 20
_PROMPT = [{"role": "user", "content": "Name ten rivers, separated by commas."}]

RawPromptSource = Literal["template", "tokens"]
"""Where a raw prompt comes from: the server's own template as text, or as tokens."""


@dataclass(frozen=True, slots=True)
class AssistantPrefill:
    """Going on from an assistant message."""

    needs_flags: bool
    trims: bool
    """Whether white space at the message's end is lost: then a text that ends in some cannot be gone on with."""


@dataclass(frozen=True, slots=True)
class ContinuationSupport:
    raw: RawPromptSource | None = None
    prefill: AssistantPrefill | None = None

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        found = {PREFILL: self.prefill, RAW: self.raw}
        return tuple(name for name, way in found.items() if way is not None)


NO_CONTINUATION = ContinuationSupport()


class _ProbeReply(NamedTuple):
    text: str
    prompt_tokens: int
    written: int


async def probe_continuation(backend: Backend, model: str) -> ContinuationSupport:
    """Raises BackendError if the server does not answer at all."""
    try:
        async with asyncio.timeout(PROBE_S):
            return await _ContinuationProbe(backend, model).run()
    except TimeoutError:
        raise BackendTimeout(f"the model server took over {PROBE_S:.0f} s for a few tokens") from None


class _ContinuationProbe:
    def __init__(self, backend: Backend, model: str) -> None:
        self._backend = backend
        self._model = model

    async def run(self) -> ContinuationSupport:
        first = await self._stream(CHAT, {"messages": _PROMPT}, PROBE_TOKENS)
        if first is None:
            raise BadBackendReply("the model server would not chat")
        if not first.text.strip() or not first.written or not first.prompt_tokens:
            return NO_CONTINUATION
        wanted = first.prompt_tokens + first.written
        return ContinuationSupport(await self._raw(first.text, wanted), await self._prefill(first.text, wanted))

    async def _raw(self, text: str, wanted: int) -> RawPromptSource | None:
        for dialect in ("template", "tokens"):
            prompt = await raw_prompt(self._backend, self._model, {"messages": _PROMPT}, text, dialect)
            told = await self._stream(COMPLETIONS, {"prompt": prompt}, 1) if prompt is not None else None
            if told is not None and told.prompt_tokens == wanted:
                return dialect
        return None

    async def _prefill(self, text: str, wanted: int) -> AssistantPrefill | None:
        for flags in (FLAGS, {}):
            told = await self._stream(CHAT, {"messages": _given(text), **flags}, 1)
            if told is None or told.prompt_tokens != wanted or told.text.startswith(text):
                continue  # it repeats what it was given, or has read something else
            spaced = await self._stream(CHAT, {"messages": _given(text.rstrip() + "\n\n\n"), **flags}, 1)
            plain = await self._stream(CHAT, {"messages": _given(text.rstrip()), **flags}, 1)
            trims = spaced is None or plain is None or spaced.prompt_tokens <= plain.prompt_tokens
            return AssistantPrefill(needs_flags=bool(flags), trims=trims)
        return None

    async def _stream(self, path: str, fields: dict[str, Any], tokens: int) -> _ProbeReply | None:
        """As jobs are asked for: some servers repeat the beginning of a whole answer, and not of a streamed one."""
        common = {"model": self._model, "temperature": 0, "max_tokens": tokens, "stream": True}
        body = fields | common | {"stream_options": {"include_usage": True}}
        answer = await post_json(self._backend, path, body)
        return _read(answer) if answer is not None else None


async def raw_prompt(
    backend: Backend, model: str, request: dict[str, Any], text: str, dialect: RawPromptSource
) -> str | list[int] | None:
    """A chat's prompt as the server's own template makes it, with `text` behind; None if it cannot say."""
    chat: dict[str, Any] = {name: request[name] for name in ("messages", "chat_template_kwargs") if name in request}
    if dialect == "template":
        made = _object(await post_json(backend, TEMPLATE, chat)).get("prompt")
        return made + text if isinstance(made, str) else None
    before = await _tokens(backend, {"model": model, **chat})
    after = await _tokens(backend, {"model": model, "prompt": text, "add_special_tokens": False})
    return before + after if before and after else None


async def _tokens(backend: Backend, asked: dict[str, Any]) -> list[int]:
    found = _object(await post_json(backend, TOKENIZE, asked)).get("tokens")
    return [each for each in found if isinstance(each, int)] if isinstance(found, list) else []


async def post_json(backend: Backend, path: str, body: dict[str, Any]) -> bytes | None:
    """A whole answer; None for anything but success. Raises BackendError."""
    async with backend.post(path, msgspec.json.encode(body)) as reply:
        answer = bytearray()
        async for chunk in reply.chunks:
            answer += chunk
            if len(answer) > _ANSWER_BYTES_MAX:
                raise BadBackendReply("the model server's answer is over the limit")
    return bytes(answer) if reply.status == 200 else None


def _given(text: str) -> list[dict[str, str]]:
    return [*_PROMPT, {"role": "assistant", "content": text}]


def _object(body: bytes | None) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _read(answer: bytes) -> _ProbeReply | None:
    text, usage = "", dict[str, Any]()
    try:
        for line in answer.splitlines():
            if line.startswith(b"data: {"):
                chunk = msgspec.json.decode(line[6:], type=dict[str, Any])
                usage = chunk.get("usage") or usage
                text += "".join(_text_of(choice) for choice in chunk.get("choices") or ())
        return _ProbeReply(text, int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError, ValueError, RecursionError):
        return None


def _text_of(choice: dict[str, Any]) -> str:
    found = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
    return found if isinstance(found, str) else ""
