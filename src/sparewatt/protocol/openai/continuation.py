"""Going on with an answer that another node began: which answers can, by which ways, and what the next node is asked.

A gateway sends the request as it was, with fewer tokens left to write, and behind it the text that the client has. The
node makes of it what its model server understands. Nobody is ever asked in words to continue: the model sees the prompt
and its own text, as if it had written it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.link.node_report import Capability

PREFILL: Capability = "continue_prefill"
RAW: Capability = "continue_raw"
_EVERY_WAY = frozenset({PREFILL, RAW})
_NO_WAY: frozenset[Capability] = frozenset()

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
"""Fields that hold an answer to a grammar. Servers start one at the first token they write: the rest of an answer would
be a second whole one."""

_LIMITS = ("max_tokens", "max_completion_tokens")


class ContinuationTerms(NamedTuple):
    """What a request says about going on with its answer."""

    methods: frozenset[Capability] = _NO_WAY
    """Those that lead to the same answer; none if it has to end where it broke."""
    why_not: str = ""
    stops: tuple[str, ...] = ()
    output_limit: int | None = None
    choices: int = 0
    """Answers at once; 0 if it is not known."""


def continuation_terms(path: JobPath, body: bytes) -> ContinuationTerms:
    """Of a request that was accepted. Whatever is not understood cannot go on."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        why_not = _why_not(fields) or _why_not_by_path(path, fields)
        ways = _NO_WAY if why_not else _ways(path, fields)
        limits = [fields[name] for name in reversed(_LIMITS) if fields.get(name)]
        limit = int(limits[0]) if limits else None
        return ContinuationTerms(ways, why_not, _stops(fields.get("stop")), limit, int(fields.get("n") or 1))
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ):
        return ContinuationTerms(why_not="the request has an unknown shape")


def _why_not(fields: dict[str, Any]) -> str:
    if any((fields.get(name) or 1) != 1 for name in ("n", "best_of")) or fields.get("use_beam_search"):
        return "several answers at once cannot go on elsewhere"
    wanted = fields.get("response_format") or {}
    if wanted.get("type", "text") != "text" or any(fields.get(name) for name in _GRAMMARS):
        return "an answer held to a schema cannot go on elsewhere"
    if fields.get("echo"):
        return "an answer that repeats its prompt cannot go on elsewhere"
    return ""


def _why_not_by_path(path: JobPath, fields: dict[str, Any]) -> str:
    match path:
        case "/v1/chat/completions":
            last = fields["messages"][-1]
            is_open = last.get("role") != "assistant" or isinstance(last.get("content"), str)
            return "" if is_open else "the request ends in a message that cannot be taken up"
        case "/v1/completions":
            is_one = isinstance(fields["prompt"], str) and not fields.get("suffix") and fields.get("logprobs") is None
            return "" if is_one else "only the completion of one plain prompt can go on elsewhere"
        case _:
            return "only text can go on elsewhere"


def _ways(path: JobPath, fields: dict[str, Any]) -> frozenset[Capability]:
    if path == "/v1/completions":
        return frozenset({RAW})
    return frozenset({PREFILL}) if needs_chat(fields) else _EVERY_WAY


def needs_chat(fields: dict[str, Any]) -> bool:
    """Whether its answer comes out right only through a chat endpoint: calls to parse, logprobs to shape, images."""
    has_tools = bool(fields.get("tools") or fields.get("functions")) and fields.get("tool_choice") != "none"
    has_logprobs = bool(fields.get("logprobs")) or fields.get("top_logprobs") is not None
    return has_tools or has_logprobs or any(_has_media(message) for message in fields["messages"])


def _has_media(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") != "text" for part in content)


def _stops(stop: object) -> tuple[str, ...]:
    found = stop if isinstance(stop, list) else [stop]
    return tuple(each for each in found if isinstance(each, str) and each)


def with_reduced_limits(body: bytes, tokens: int) -> bytes:
    """The same request after so many tokens of its answer."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    for name in (*_LIMITS, "min_tokens"):
        given = msgspec.json.decode(fields.get(name, msgspec.Raw(b"null")))
        if isinstance(given, int) and given > 0:
            least = 0 if name == "min_tokens" else 1
            fields[name] = msgspec.Raw(b"%d" % max(least, given - tokens))
    return msgspec.json.encode(fields)
