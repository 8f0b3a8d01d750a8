"""The response object: what was asked for, said back in full, and what came of it."""

from __future__ import annotations

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.responses.chat_request import text_format
from sparewatt.protocol.responses.request import Json, ResponsesRequest
from sparewatt.protocol.responses.tools import ToolSelection

FINAL = ("completed", "incomplete", "failed", "cancelled")
"""States in which nothing more happens to a response."""


def new_response(
    request: ResponsesRequest, tools: ToolSelection, *, response_id: str, created_at: int, stored: bool
) -> Json:
    """As it is before anything was written. Every field is there: the Open Responses specification wants them all."""
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
        "reasoning": {
            "effort": reasoning.effort if reasoning is not None else None,
            "summary": None,
        },
        "truncation": "disabled",
        "max_output_tokens": request.max_output_tokens,
        "temperature": _or(request.temperature, 1.0),
        "top_p": _or(request.top_p, 1.0),
        "presence_penalty": _or(request.presence_penalty, 0.0),
        "frequency_penalty": _or(request.frequency_penalty, 0.0),
        "top_logprobs": request.top_logprobs or 0,
        "usage": None,
        "store": stored,
        "background": bool(request.background),
        "service_tier": "default",
        "metadata": request.metadata or {},
        "user": request.user,
        "safety_identifier": request.safety_identifier,
        "prompt_cache_key": request.prompt_cache_key,
    }


def _or(value: float | None, usual: float) -> float:
    return usual if value is None else value


def failed(response: Json, error: SparewattError) -> Json:
    return response | {"status": "failed", "error": error_of(error)}


def cancelled(response: Json) -> Json:
    return response | {"status": "cancelled"}


def error_of(error: SparewattError) -> Json:
    """In the few codes that a response's error may have; the message says what it was."""
    code = "rate_limit_exceeded" if error.status == 429 else "invalid_prompt" if error.status < 500 else "server_error"
    return {"code": code, "message": error.message}


def usage_of(usage: Json | None) -> Json | None:
    """Token counts of a chat, in a response's words. What they cost stands beside them, as in a chat."""
    if usage is None:
        return None
    prompt, written = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    cached = _count(_details(usage, "prompt_tokens_details"), "cached_tokens")
    reasoned = _count(_details(usage, "completion_tokens_details"), "reasoning_tokens")
    counts = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": reasoned},
        "total_tokens": prompt + written,
    }
    return counts | ({"cost": usage["cost"]} if "cost" in usage else {})


def _details(usage: Json, name: str) -> Json:
    found = usage.get(name)
    return found if isinstance(found, dict) else {}


def _count(counts: Json, name: str) -> int:
    found = counts.get(name)
    return found if isinstance(found, int) else 0
