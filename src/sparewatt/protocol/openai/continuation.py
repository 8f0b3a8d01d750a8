"""Failover within an answer: which answers another node can continue, by which methods, and with which request.

The gateway sends the same request with a lower token limit, followed by the text that the client already has. The node
converts both into what its model server understands. There is no instruction to continue: the model sees the prompt,
and the text so far as its own output.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.link.node_report import Capability

PREFILL: Capability = "continue_prefill"
RAW: Capability = "continue_raw"
_NO_METHOD: frozenset[Capability] = frozenset()

_GRAMMARS = (
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
)
"""Fields that constrain an answer by a grammar. Servers start the grammar at the first token they write, so the rest of
an answer would become a second whole one."""

_LIMITS = ("max_tokens", "max_completion_tokens")


class ContinuationTerms(NamedTuple):
    """How the answer of a request can be continued."""

    methods: frozenset[Capability] = _NO_METHOD
    """Empty if the answer has to end where it broke off."""
    why_not: str = ""
    stops: tuple[str, ...] = ()
    output_limit: int | None = None
    choices: int = 0
    """How many answers were requested; 0 if that is not known."""


def continuation_terms(path: JobPath, body: bytes) -> ContinuationTerms:
    """For a request that was accepted. An answer to something unknown cannot be continued."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        why_not = _why_not(fields) or _why_not_by_path(path, fields)
        methods = _NO_METHOD if why_not else _methods(path, fields)
        limits = [fields[name] for name in reversed(_LIMITS) if fields.get(name)]
        limit = int(limits[0]) if limits else None
        return ContinuationTerms(methods, why_not, _stops(fields.get("stop")), limit, int(fields.get("n") or 1))
    except (msgspec.DecodeError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return ContinuationTerms(why_not="the request has an unknown shape")


def _why_not(fields: dict[str, Any]) -> str:
    if any((fields.get(name) or 1) != 1 for name in ("n", "best_of")) or fields.get("use_beam_search"):
        return "several answers at once cannot be continued by another node"
    response_format = fields.get("response_format") or {}
    if response_format.get("type", "text") != "text" or any(fields.get(name) for name in _GRAMMARS):
        return "an answer held to a schema cannot be continued by another node"
    if fields.get("echo"):
        return "an answer that repeats its prompt cannot be continued by another node"
    return ""


def _why_not_by_path(path: JobPath, fields: dict[str, Any]) -> str:
    match path:
        case "/v1/chat/completions":
            last = fields["messages"][-1]
            can_extend = last.get("role") != "assistant" or isinstance(last.get("content"), str)
            return "" if can_extend else "the last message of the request cannot be extended"
        case "/v1/completions":
            is_one = isinstance(fields["prompt"], str) and not fields.get("suffix") and fields.get("logprobs") is None
            return "" if is_one else "only the completion of one plain prompt can be continued by another node"
        case _:
            return "only text can be continued by another node"


def _methods(path: JobPath, fields: dict[str, Any]) -> frozenset[Capability]:
    if path == "/v1/completions":
        return frozenset({RAW})
    return frozenset({PREFILL}) if needs_chat(fields) else frozenset({PREFILL, RAW})


def needs_chat(fields: dict[str, Any]) -> bool:
    """Whether the answer needs a chat endpoint: it parses tool calls, formats logprobs and takes images."""
    has_tools = bool(fields.get("tools") or fields.get("functions")) and fields.get("tool_choice") != "none"
    has_logprobs = bool(fields.get("logprobs")) or fields.get("top_logprobs") is not None
    return has_tools or has_logprobs or any(_has_media(message) for message in fields["messages"])


def _has_media(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") != "text" for part in content)


def _stops(stop: object) -> tuple[str, ...]:
    texts = stop if isinstance(stop, list) else [stop]
    return tuple(text for text in texts if isinstance(text, str) and text)


def with_reduced_limits(body: bytes, tokens: int) -> bytes:
    """The same request, after so many tokens of its answer were written."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    for name in (*_LIMITS, "min_tokens"):
        given = msgspec.json.decode(fields.get(name, msgspec.Raw(b"null")))
        if isinstance(given, int) and given > 0:
            least = 0 if name == "min_tokens" else 1
            fields[name] = msgspec.Raw(b"%d" % max(least, given - tokens))
    return msgspec.json.encode(fields)
