"""Requests in Ollama's shapes for tests, and what they become."""

from __future__ import annotations

import json
from typing import Any

from sparewatt.protocol.ollama.chat_request import prompt_to_chat, prompt_to_completion, to_chat, to_embeddings
from sparewatt.protocol.ollama.request import (
    OllamaChatRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    ParsedOllama,
    parse_ollama,
)

Json = dict[str, Any]

PNG = "iVBORw0KGgo="
TOOL: Json = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def encoded(**fields: Any) -> bytes:
    return json.dumps({"model": "llama"} | fields).encode()


def as_json(made: Json) -> Json:
    """As a node would read it."""
    read: Json = json.loads(json.dumps(made, default=lambda raw: json.loads(bytes(raw))))
    return read


def parsed_chat(**fields: Any) -> ParsedOllama:
    return parse_ollama(encoded(**fields), OllamaChatRequest)[1]


def chat_of(*messages: Json, **fields: Any) -> Json:
    given = list(messages) or [{"role": "user", "content": "Hi"}]
    return as_json(to_chat(*parse_ollama(encoded(messages=given, **fields), OllamaChatRequest)))


def prompt_of(**fields: Any) -> Json:
    return as_json(prompt_to_chat(*parse_ollama(encoded(**fields), OllamaGenerateRequest)))


def completion_of(**fields: Any) -> Json:
    return as_json(prompt_to_completion(*parse_ollama(encoded(**fields), OllamaGenerateRequest)))


def embeddings_of(**fields: Any) -> Json:
    return as_json(to_embeddings(parse_ollama(encoded(**fields), OllamaEmbedRequest)[0]))
