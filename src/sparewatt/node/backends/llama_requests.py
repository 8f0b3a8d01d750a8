"""What is rewritten in a request for llama.cpp: tools without a template, and patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from sparewatt.node.backends.generic_tools import UnreadableTools, generic_request
from sparewatt.node.backends.llama_patterns import PatternNotHeld, with_held_patterns

__all__ = ["LlamaRequest", "PatternNotHeld", "rewritten_request"]
_CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class LlamaRequest:
    body: bytes
    is_generic: bool = False
    """Whether its answer is JSON that stands for a tool call or a text."""


def rewritten_request(path: str, body: bytes, *, has_tool_template: bool) -> LlamaRequest:
    """Raises PatternNotHeld."""
    may_have_tools = not has_tool_template and b'"tools"' in body
    may_have_patterns = b'"pattern"' in body
    if path != _CHAT or not (may_have_tools or may_have_patterns):
        return LlamaRequest(body)
    try:
        fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        generic = generic_request(fields) if may_have_tools else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, UnreadableTools):
        return LlamaRequest(body)  # the server says what is wrong with it
    fields = generic if generic is not None else fields
    if may_have_patterns:
        fields = with_held_patterns(fields)
    is_generic = generic is not None and "json_schema" in (generic.get("response_format") or {})
    return LlamaRequest(msgspec.json.encode(fields), is_generic=is_generic)
