"""The bodies of the endpoints that models answer, and the error object, as JSON schemas.

By hand: a gateway decodes only what it needs of these bodies, so its own types say too little. A field that is not
listed is allowed: `protocol/openai/parameters.py` has the table of what is passed on.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_INT: Schema = {"type": "integer"}
_BOOL: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "number"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _full(**properties: Schema) -> Schema:
    """An object that has all of its fields."""
    return _object(properties, *properties)


_TOKENS: Schema = _or_null({"type": "integer", "minimum": 1, "maximum": 1 << 24})
_ANSWERS: Schema = _or_null({"type": "integer", "minimum": 1, "maximum": 128})
_STOP: Schema = {"anyOf": [_TEXT, _list(_TEXT, maxItems=4), {"type": "null"}]}
_TEXTS: Schema = {
    "anyOf": [
        _TEXT,
        _list(_TEXT, minItems=1, maxItems=2048),
        _list({"type": "integer", "minimum": 0, "maximum": 1 << 31}, minItems=1),
        _list(_list({"type": "integer", "minimum": 0, "maximum": 1 << 31}, minItems=1), minItems=1, maxItems=2048),
    ]
}
_CHOICE: Schema = {"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}, {"type": "null"}]}
_MODEL: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
_GENERATING: dict[str, Schema] = {
    "model": _MODEL,
    "models": _or_null(_list(_MODEL, maxItems=8, description="Tried in this order, after `model`, until one answers.")),
    "stream": _or_null(_BOOL),
    "stream_options": _or_null(_object({"include_usage": _or_null(_BOOL)})),
    "n": _ANSWERS,
    "stop": _STOP,
    "seed": _or_null(_INT),
    "temperature": _or_null({"type": "number", "minimum": 0, "maximum": 2}),
    "top_p": _or_null({"type": "number", "minimum": 0, "maximum": 1}),
    "presence_penalty": _or_null(_NUMBER),
    "frequency_penalty": _or_null(_NUMBER),
    "provider": {"type": "object", "description": "Who may serve it: docs/reference/policy.md."},
}

_BLOCKS: Schema = {"anyOf": [_TEXT, _list({"type": "object"}, minItems=1)]}
_MESSAGES: dict[str, Schema] = {
    "model": _MODEL,
    "messages": _list(
        _full(role={"enum": ["user", "assistant", "system"]}, content=_BLOCKS), minItems=1, maxItems=20_000
    ),
    "system": _or_null(_BLOCKS),
    "stream": _or_null(_BOOL),
    "stop_sequences": _or_null(_list({"type": "string", "minLength": 1, "maxLength": 1_000}, maxItems=16)),
    "temperature": _GENERATING["temperature"],
    "top_p": _GENERATING["top_p"],
    "top_k": _or_null({"type": "integer", "minimum": 0}),
    "tools": _or_null(_list({"type": "object"}, maxItems=512)),
    "tool_choice": _or_null({"type": "object"}),
    "thinking": _or_null(_object({"type": {"enum": ["enabled", "adaptive", "disabled"]}}, "type")),
    "output_config": _or_null({"type": "object"}),
    "provider": _GENERATING["provider"],
}

_OLLAMA: dict[str, Schema] = {
    "model": _MODEL,
    "stream": _or_null({"type": "boolean", "default": True}),
    "format": {"anyOf": [{"enum": ["", "json"]}, {"type": "object"}, {"type": "null"}]},
    "options": _or_null({"type": "object", "description": "docs/reference/ollama.md has the table."}),
    "think": {"anyOf": [_BOOL, {"enum": ["low", "medium", "high", "max"]}, {"type": "null"}]},
    "provider": _GENERATING["provider"],
}

SHAPES: dict[str, Schema] = {
    "Error": _full(error=_full(message=_TEXT, type=_TEXT, param=_or_null(_TEXT), code=_or_null(_TEXT))),
    "ChatRequest": _object(
        {
            **_GENERATING,
            "messages": _list(
                _full(
                    role={"enum": ["developer", "system", "user", "assistant", "tool"]},
                    content={"anyOf": [_TEXT, _list(ref("ContentPart"), minItems=1), {"type": "null"}]},
                ),
                minItems=1,
            ),
            "max_tokens": _TOKENS,
            "max_completion_tokens": _TOKENS,
            "logprobs": _or_null(_BOOL),
            "top_logprobs": _or_null({"type": "integer", "minimum": 0, "maximum": 20}),
            "tools": _or_null(_list({"type": "object"}, maxItems=128)),
            "tool_choice": _CHOICE,
            "parallel_tool_calls": _or_null(_BOOL),
            "response_format": _or_null({"type": "object"}),
        },
        "model",
        "messages",
    ),
    "ContentPart": {
        "anyOf": [
            _full(type={"const": "text"}, text=_TEXT),
            _full(type={"const": "image_url"}, image_url=_full(url=_TEXT)),
        ]
    },
    "CompletionRequest": _object(
        {
            **_GENERATING,
            "prompt": _TEXTS,
            "max_tokens": _or_null({"type": "integer", "minimum": 0, "maximum": 1 << 24}),
            "best_of": _ANSWERS,
            "echo": _or_null(_BOOL),
            "logprobs": _or_null({"type": "integer", "minimum": 0, "maximum": 20}),
            "suffix": _or_null(_TEXT),
        },
        "model",
        "prompt",
    ),
    "EmbeddingRequest": _object(
        {
            "model": _MODEL,
            "input": _TEXTS,
            "encoding_format": _or_null({"enum": ["float", "base64"]}),
            "dimensions": _or_null({"type": "integer", "minimum": 1, "maximum": 1 << 16}),
            "provider": _GENERATING["provider"],
        },
        "model",
        "input",
    ),
    "ResponseRequest": _object(
        {
            "model": _MODEL,
            "input": {"anyOf": [_TEXT, _list({"type": "object"}, maxItems=10_000), {"type": "null"}]},
            "instructions": _or_null(_TEXT),
            "previous_response_id": _or_null({"type": "string", "maxLength": 256}),
            "store": _or_null({"type": "boolean", "default": False, "description": "Keep it for 24 h, sealed."}),
            "stream": _or_null(_BOOL),
            "background": _or_null(_BOOL),
            "tools": _or_null(_list({"type": "object"}, maxItems=512)),
            "tool_choice": _CHOICE,
            "parallel_tool_calls": _or_null(_BOOL),
            "text": _or_null(_object({"format": _or_null({"type": "object"})})),
            "reasoning": _or_null(_object({"effort": _or_null(_TEXT)})),
            "max_output_tokens": _TOKENS,
            "temperature": _GENERATING["temperature"],
            "top_p": _GENERATING["top_p"],
            "top_logprobs": _or_null({"type": "integer", "minimum": 0, "maximum": 20}),
            "include": _or_null(_list(_TEXT, maxItems=32)),
            "metadata": _or_null(
                {"type": "object", "additionalProperties": {"type": "string", "maxLength": 512}, "maxProperties": 16}
            ),
            "provider": _GENERATING["provider"],
        },
        "model",
    ),
    "MessagesRequest": _object({**_MESSAGES, "max_tokens": _TOKENS}, "model", "messages", "max_tokens"),
    "MessageCountRequest": _object(_MESSAGES, "model", "messages"),
    "AnthropicError": _full(type={"const": "error"}, error=_full(type=_TEXT, message=_TEXT), request_id=_TEXT),
    "OllamaChatRequest": _object(
        {
            **_OLLAMA,
            "messages": _or_null(
                _list(
                    _object(
                        {
                            "role": {"enum": ["system", "user", "assistant", "tool"]},
                            "content": _or_null(_TEXT),
                            "images": _or_null(_list(_TEXT, maxItems=64)),
                            "tool_calls": _or_null(_list({"type": "object"}, maxItems=512)),
                            "tool_name": _or_null(_TEXT),
                        },
                        "role",
                    ),
                    maxItems=20_000,
                )
            ),
            "tools": _or_null(_list({"type": "object"}, maxItems=512)),
        },
        "model",
    ),
    "OllamaGenerateRequest": _object(
        {
            **_OLLAMA,
            "prompt": _or_null(_TEXT),
            "suffix": _or_null(_TEXT),
            "system": _or_null(_TEXT),
            "raw": _or_null(_BOOL),
            "images": _or_null(_list(_TEXT, maxItems=64)),
        },
        "model",
    ),
    "OllamaEmbedRequest": _object(
        {
            "model": _MODEL,
            "input": {"anyOf": [_TEXT, _list(_TEXT, minItems=1, maxItems=2048)]},
            "dimensions": _or_null({"type": "integer", "minimum": 1, "maximum": 1 << 16}),
        },
        "model",
        "input",
    ),
    "OllamaPromptRequest": _full(model=_MODEL, prompt=_TEXT),
    "OllamaError": _full(error=_TEXT),
}
