"""The fields of a request that are forwarded to model servers, by endpoint.

Any other field at the top level of a body is dropped, and named in the reply: a strict server would refuse it, and a
lenient one would ignore it silently.

A field that affects the server beyond one answer is not forwarded, even if a server knows it: which slot or scheduler
class to use, which template or adapter to load, how long to compute regardless of `max_tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from sparewatt.protocol.link.frames import JobPath

_OURS = frozenset({"provider"})

_EVERY = frozenset({"model", "stream", "stream_options"})

_SAMPLING = frozenset(
    {
        # OpenAI
        "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n", "presence_penalty", "seed", "stop",
        "temperature", "top_p",
        # vLLM
        "allowed_token_ids", "bad_words", "guided_choice", "guided_decoding_backend", "guided_grammar", "guided_json",
        "guided_regex", "guided_whitespace_pattern", "ignore_eos", "include_stop_str_in_output", "length_penalty",
        "min_p", "min_tokens", "prompt_logprobs", "repetition_penalty", "return_token_ids",
        "return_tokens_as_token_ids", "skip_special_tokens", "spaces_between_special_tokens", "stop_token_ids",
        "structured_outputs", "top_k", "truncate_prompt_tokens", "use_beam_search",
        # SGLang
        "ebnf", "no_stop_trim", "regex", "stop_regex",
        # llama.cpp
        "cache_prompt", "dry_allowed_length", "dry_base", "dry_multiplier", "dry_penalty_last_n",
        "dry_sequence_breakers", "dynatemp_exponent", "dynatemp_range", "grammar", "json_schema", "mirostat",
        "mirostat_eta", "mirostat_tau", "n_probs", "post_sampling_probs", "repeat_last_n", "repeat_penalty",
        "return_tokens", "samplers", "timings_per_token", "top_n_sigma", "typical_p", "xtc_probability",
        "xtc_threshold",
    }
)  # fmt: skip

_CHAT = frozenset(
    {
        # OpenAI
        "max_completion_tokens", "messages", "parallel_tool_calls", "reasoning_effort", "response_format",
        "tool_choice", "tools", "top_logprobs",
        # vLLM and SGLang
        "add_generation_prompt", "add_special_tokens", "chat_template_kwargs", "continue_final_message", "documents",
        "include_reasoning", "mm_processor_kwargs", "separate_reasoning", "stream_reasoning",
        # llama.cpp
        "parse_tool_calls", "reasoning_format",
        # providers of reasoning models
        "enable_thinking", "reasoning", "thinking",
    }
)  # fmt: skip

_COMPLETIONS = frozenset({"add_special_tokens", "best_of", "echo", "prompt", "response_format", "suffix"})

_EMBEDDINGS = frozenset(
    {
        "add_special_tokens", "dimensions", "encoding_format", "input", "input_type", "model", "normalize",
        "truncate_prompt_tokens",
    }
)  # fmt: skip

FORWARDED_FIELDS: Mapping[JobPath, frozenset[str]] = {
    "/v1/chat/completions": _EVERY | _SAMPLING | _CHAT,
    "/v1/completions": _EVERY | _SAMPLING | _COMPLETIONS,
    "/v1/embeddings": _EMBEDDINGS,
}

_KNOWN = {path: names | _OURS for path, names in FORWARDED_FIELDS.items()}

INERT_FIELDS = frozenset(
    {
        "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user",
    }
)  # fmt: skip
"""OpenAI's fields without influence on the answer. They are dropped and named too, but never a reason to refuse a
request. Some identify the user."""

_DEFAULTS: Mapping[str, frozenset[bytes]] = {
    "store": frozenset({b"false"}),
    "service_tier": frozenset({b'"auto"', b'"default"'}),
}
"""Values that ask for what happens without the field."""

_OFF = (b"null", b"false", b'""')

_NOT_IMPLEMENTED: Mapping[str, frozenset[str]] = {"llama.cpp": frozenset({"echo", "suffix"})}
"""Fields that a kind of server accepts and ignores."""

_NAMES_MAX, _NAME_CHARS_MAX = 32, 64
_NOT_IN_HEADER = re.compile(r"[^A-Za-z0-9_.\-]")
_NOT_PRINTABLE = re.compile(r"[^ -~]")


def unknown_fields(fields: Mapping[str, msgspec.Raw], path: JobPath) -> tuple[str, ...]:
    """The fields of a body that are dropped."""
    if _KNOWN[path].issuperset(fields):
        return ()
    return tuple(name for name in fields if name not in FORWARDED_FIELDS[path] and name not in _OURS)


def ignored_fields(fields: Mapping[str, msgspec.Raw], path: JobPath) -> tuple[str, ...]:
    """The dropped fields that the reply names: those that differ from their default."""
    unknown = unknown_fields(fields, path)
    return unknown and tuple(name for name in unknown if not _is_default(name, bytes(fields[name])))


def partly_supported_fields(fields: Mapping[str, msgspec.Raw], path: JobPath) -> tuple[str, ...]:
    """Forwarded fields that some servers ignore."""
    if path != "/v1/completions":
        return ()
    names = sorted(frozenset().union(*_NOT_IMPLEMENTED.values()))
    return tuple(name for name in names if bytes(fields.get(name, b"null")) not in _OFF)


def unsupported_by(names: tuple[str, ...], server: str) -> tuple[str, ...]:
    """Those of the names that this kind of server ignores."""
    return tuple(name for name in names if name in _NOT_IMPLEMENTED.get(server, ()))


def _is_default(name: str, value: bytes) -> bool:
    return value == b"null" or value in _DEFAULTS.get(name, ())


def header_value(text: str) -> str:
    """A text from a client or a node, made safe for a header."""
    return text if text.isascii() and text.isprintable() else _NOT_PRINTABLE.sub("_", text)


def header_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names from a client's body, made safe for a header."""
    return tuple(_NOT_IN_HEADER.sub("_", name)[:_NAME_CHARS_MAX] for name in names[:_NAMES_MAX])
