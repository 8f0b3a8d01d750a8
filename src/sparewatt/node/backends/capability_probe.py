"""Can it do this? Where a server does not tell, it is asked once, with a tiny job; what it cannot do is not claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from sparewatt.core.log import Logger
from sparewatt.node.backends.backend import Backend, BackendTimeout
from sparewatt.protocol.link.node_report import Capability

_log = Logger("sparewatt.node")
PROBE_S = 60.0
TOKENS = 400
"""Room for a model that thinks before it answers; one that does not is done after a dozen."""
ANSWER_BYTES_MAX = 1 << 20
_SCHEMA = {
    "type": "object",
    "properties": {"yes": {"type": "boolean"}},
    "required": ["yes"],
    "additionalProperties": False,
}
_CHAT = {"messages": [{"role": "user", "content": "Say yes."}], "temperature": 0}
_TOOL = {"type": "function", "function": {"name": "say", "parameters": _SCHEMA}}
_PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
    "embeddings": ("/v1/embeddings", {"input": "a"}),
    "logprobs": ("/v1/chat/completions", _CHAT | {"max_tokens": 1, "logprobs": True, "top_logprobs": 1}),
    "json_schema": (
        "/v1/chat/completions",
        _CHAT
        | {
            "max_tokens": TOKENS,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA, "strict": True}},
        },
    ),
    "tools": ("/v1/chat/completions", _CHAT | {"max_tokens": TOKENS, "tools": [_TOOL], "tool_choice": "required"}),
}


async def probe_capabilities(backend: Backend, model: str, wanted: Collection[Capability]) -> tuple[Capability, ...]:
    """Those of `wanted` that this model on this server can do. Raises BackendError if it does not answer at all."""
    return tuple([each for each in wanted if each in _PROBES and await _can(backend, model, each)])


async def _can(backend: Backend, model: str, wanted: Capability) -> bool:
    path, body = _PROBES[wanted]
    try:
        async with asyncio.timeout(PROBE_S), backend.post(path, msgspec.json.encode({"model": model, **body})) as reply:
            if reply.status != 200:
                return False
            answer = bytearray()
            async for chunk in reply.chunks:
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX:
                    return False
        return has_evidence(wanted, msgspec.json.decode(bytes(answer)))
    except TimeoutError:
        raise BackendTimeout(f"the model server took over {PROBE_S:.0f} s for a tiny job") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _log.info("try_failed", what=wanted, model=model, why=str(error)[:200])
        return False


def has_evidence(wanted: Capability, answer: Any) -> bool:
    """Whether the answer really has what was asked for: many servers ignore what they do not know."""
    try:
        return bool(_EVIDENCE[wanted](answer))
    except (KeyError, IndexError, TypeError, msgspec.DecodeError):
        return False


def _follows_schema(answer: Any) -> bool:
    told = msgspec.json.decode(answer["choices"][0]["message"]["content"])
    return isinstance(told["yes"], bool) and set(told) == {"yes"}


_EVIDENCE: dict[str, Callable[[Any], bool]] = {
    "completions": lambda answer: isinstance(answer["choices"][0]["text"], str),
    "embeddings": lambda answer: bool(answer["data"][0]["embedding"]),
    "logprobs": lambda answer: isinstance(answer["choices"][0]["logprobs"]["content"][0]["logprob"], float | int),
    "json_schema": _follows_schema,
    "tools": lambda answer: answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "say",
}
