"""The response object: the request's options in full, and its outcome."""

from __future__ import annotations

from typing import Any

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.responses.chat_request import text_format
from sparewatt.protocol.responses.request import Json, ResponsesRequest
from sparewatt.protocol.responses.tools import ToolSelection

FINAL = ("completed", "incomplete", "failed", "cancelled")
"""States in which a response does not change any more."""


def new_response(
    request: ResponsesRequest, tools: ToolSelection, *, response_id: str, created_at: int, stored: bool
) -> Json:
    """A response without output. Every field is present, as the Open Responses specification requires."""
    text: Json = {"format": text_format(request.text)}
    if request.text is not None and request.text.verbosity is not None:
        text["verbosity"] = request.text.verbosity
    reasoning = request.reasoning
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": request.model,
        "previous_response_id": request.previous_response_id,
        "instructions": request.instructions,
        "output": [],
        "tools": list(tools.functions),
        "tool_choice": tools.choice,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "max_tool_calls": request.max_tool_calls,
        "text": text,
        "reasoning": {"effort": reasoning.effort if reasoning is not None else None, "summary": None},
        "truncation": "disabled",
        "max_output_tokens": request.max_output_tokens,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "presence_penalty": request.presence_penalty or 0.0,
        "frequency_penalty": request.frequency_penalty or 0.0,
        "top_logprobs": request.top_logprobs or 0,
        "usage": None,
        "store": stored,
        "background": bool(request.background),
        "service_tier": "default",
        "metadata": request.metadata or {},
        **({} if request.user is None else {"user": request.user}),  # alone among these it must not be null
        "safety_identifier": request.safety_identifier,
        "prompt_cache_key": request.prompt_cache_key,
    } | ({"conversation": {"id": request.conversation_id}} if request.conversation_id is not None else {})


def failed(response: Json, error: SparewattError) -> Json:
    """The specification has only these few error codes; the message has the details."""
    code = "rate_limit_exceeded" if error.status == 429 else "invalid_prompt" if error.status < 500 else "server_error"
    return response | {"status": "failed", "error": {"code": code, "message": error.message}}


def usage_of(usage: Json | None) -> Json | None:
    """The token counts of a chat under the names of a response, with their cost."""
    if usage is None:
        return None
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    counts = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + output,
    }
    return counts | ({"cost": usage["cost"]} if "cost" in usage else {})


def _count(counts: Any, name: str) -> int:
    """Model servers write these counts, so they may be anything."""
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if isinstance(count, int) else 0
