"""Every field of a request that model servers are known to take: one table, by endpoint.

What stands here is passed on as it came. Anything else at the top level of a body is left out of what a node gets, and
named in the reply: a server that is strict would refuse it, and one that is not would ignore it silently.

What steers a server beyond one answer is not passed on, whatever server takes it: which slot or scheduler class to use,
which template or adapter to load, how long to compute without regard to `max_tokens`.
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
        # what providers of reasoning models take
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
"""OpenAI's fields that say nothing about the answer. They are named too, but no request is refused for them, and they
go to no node: some tell who the user is."""

_AS_ASKED: Mapping[str, frozenset[bytes]] = {
    "store": frozenset({b"false"}),
    "service_tier": frozenset({b'"auto"', b'"default"'}),
}
"""Values that ask for what happens anyway."""

_SAYS_NOTHING = (b"null", b"false", b'""')

_DEAF: Mapping[str, frozenset[str]] = {"llama.cpp": frozenset({"echo", "suffix"})}
"""What a kind of server takes, and does not do."""

_NAMED_MAX, _NAME_CHARS_MAX = 32, 64
_UNFIT = re.compile(r"[^A-Za-z0-9_.\-]")


def unknown_fields(fields: Mapping[str, msgspec.Raw], path: JobPath) -> tuple[str, ...]:
    """What no node gets of a body."""
    if _KNOWN[path].issuperset(fields):
        return ()
    return tuple(name for name in fields if name not in FORWARDED_FIELDS[path] and name not in _OURS)


def ignored_fields(fields: Mapping[str, msgspec.Raw], path: JobPath) -> tuple[str, ...]:
    """Of those, what a client must hear about: it asked for something that does not happen."""
    foreign = unknown_fields(fields, path)
    return foreign and tuple(name for name in foreign if not _asks_nothing(name, bytes(fields[name])))


def partly_supported_fields(fields: Mapping[str, msgspec.Raw], path: JobPath) -> tuple[str, ...]:
    """What is passed on, and not done by every server."""
    if path != "/v1/completions":
        return ()
    names = sorted(frozenset().union(*_DEAF.values()))
    return tuple(name for name in names if bytes(fields.get(name, b"null")) not in _SAYS_NOTHING)


def unsupported_by(names: tuple[str, ...], server: str) -> tuple[str, ...]:
    """Of those, what this kind of server does not do."""
    return tuple(name for name in names if name in _DEAF.get(server, ()))


def _asks_nothing(name: str, value: bytes) -> bool:
    return value == b"null" or value in _AS_ASKED.get(name, ())


def header_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names that a client made up, fit to stand in a header."""
    return tuple(_UNFIT.sub("_", name)[:_NAME_CHARS_MAX] for name in names[:_NAMED_MAX])
