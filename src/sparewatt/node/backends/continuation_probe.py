"""Probes how a model server can continue a text: by `continue_final_message`, assistant prefill, or a raw prompt.

The server writes a short answer, then gets that answer to continue, and reports the tokens of its prompt. Only a server
that takes the text up as it stands reports exactly the tokens of prompt and answer; one that closes the message and
opens another, or repeats its template, reports more. That works with any model, however good or bad its text.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from sparewatt.node.backends.backend import Backend, BackendTimeout, BadBackendReply
from sparewatt.node.backends.reply_stream import collect
from sparewatt.protocol.link.node_report import Capability
from sparewatt.protocol.openai.continuation import PREFILL, RAW

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TEMPLATE, TOKENIZE = "/apply-template", "/tokenize"
FLAGS = {"continue_final_message": True, "add_generation_prompt": False}
"""What vLLM and SGLang need; other servers go by the role of the last message, or cannot do it."""

PROBE_S = 60.0
PROBE_TOKENS = 8
_ANSWER_BYTES_MAX = 1 << 20
_PROMPT = [{"role": "user", "content": "Name ten rivers, separated by commas."}]

RawPromptSource = Literal["template", "tokens"]
"""Where a raw prompt comes from: the server applies its chat template, and returns text or tokens."""


@dataclass(frozen=True, slots=True)
class AssistantPrefill:
    """Continuing the assistant message that ends a chat."""

    needs_flags: bool
    trims: bool
    """Whether white space at its end is lost: a text that ends in some cannot be continued then."""


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
    completion_tokens: int


async def probe_continuation(backend: Backend, model: str) -> ContinuationSupport:
    """Raises BackendError if the server does not answer at all."""
    try:
        async with asyncio.timeout(PROBE_S):
            return await _ContinuationProbe(backend, model).run()
    except TimeoutError:
        raise BackendTimeout(f"the model server took over {PROBE_S:.0f} s for a few tokens") from None


@dataclass(frozen=True, slots=True)
class _ContinuationProbe:
    backend: Backend
    model: str

    async def run(self) -> ContinuationSupport:
        first = await self._stream(CHAT, {"messages": _PROMPT}, PROBE_TOKENS)
        if first is None:
            raise BadBackendReply("the model server refused to chat")
        if not first.text.strip() or not first.completion_tokens or not first.prompt_tokens:
            return NO_CONTINUATION
        expected = first.prompt_tokens + first.completion_tokens
        return ContinuationSupport(await self._raw(first.text, expected), await self._prefill(first.text, expected))

    async def _raw(self, text: str, expected_tokens: int) -> RawPromptSource | None:
        for source in ("template", "tokens"):
            prompt = await raw_prompt(self.backend, self.model, {"messages": _PROMPT}, text, source)
            reply = await self._stream(COMPLETIONS, {"prompt": prompt}, 1) if prompt is not None else None
            if reply is not None and reply.prompt_tokens == expected_tokens:
                return source
        return None

    async def _prefill(self, text: str, expected_tokens: int) -> AssistantPrefill | None:
        for flags in (FLAGS, {}):
            reply = await self._stream(CHAT, {"messages": _prefilled(text), **flags}, 1)
            if reply is None or reply.prompt_tokens != expected_tokens or reply.text.startswith(text):
                continue  # it repeats the text, or its prompt was something else
            spaced = await self._stream(CHAT, {"messages": _prefilled(text.rstrip() + "\n\n\n"), **flags}, 1)
            plain = await self._stream(CHAT, {"messages": _prefilled(text.rstrip()), **flags}, 1)
            trims = spaced is None or plain is None or spaced.prompt_tokens <= plain.prompt_tokens
            return AssistantPrefill(needs_flags=bool(flags), trims=trims)
        return None

    async def _stream(self, path: str, fields: dict[str, Any], tokens: int) -> _ProbeReply | None:
        """Streamed, as jobs are: some servers repeat the given text only in an answer that is not streamed."""
        common = {"model": self.model, "temperature": 0, "max_tokens": tokens, "stream": True}
        body = fields | common | {"stream_options": {"include_usage": True}}
        answer = await post_json(self.backend, path, body)
        return _read(answer) if answer is not None else None


async def raw_prompt(
    backend: Backend, model: str, request: dict[str, Any], text: str, source: RawPromptSource
) -> str | list[int] | None:
    """A chat's prompt by the server's own template, followed by `text`; None if the server cannot make it."""
    chat: dict[str, Any] = {name: request[name] for name in ("messages", "chat_template_kwargs") if name in request}
    if source == "template":
        prompt = _object(await post_json(backend, TEMPLATE, chat)).get("prompt")
        return prompt + text if isinstance(prompt, str) else None
    before = await _tokens(backend, {"model": model, **chat})
    after = await _tokens(backend, {"model": model, "prompt": text, "add_special_tokens": False})
    return before + after if before and after else None


async def _tokens(backend: Backend, request: dict[str, Any]) -> list[int]:
    found = _object(await post_json(backend, TOKENIZE, request)).get("tokens")
    return [each for each in found if isinstance(each, int)] if isinstance(found, list) else []


async def post_json(backend: Backend, path: str, body: dict[str, Any]) -> bytes | None:
    """The whole answer; None for every status but 200. Raises BackendError."""
    async with backend.post(path, msgspec.json.encode(body)) as reply:
        answer = await collect(reply.chunks, bytes_max=_ANSWER_BYTES_MAX)
    return answer if reply.status == 200 else None


def _prefilled(text: str) -> list[dict[str, str]]:
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
