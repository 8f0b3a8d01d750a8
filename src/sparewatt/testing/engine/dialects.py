"""How each kind of server words its errors and what it answers to a path that it does not have.

Taken from vLLM 0.28, SGLang 0.5.18, Ollama 0.33 and, recorded, from llama.cpp's server in the xllamacpp wheel.
"""

from __future__ import annotations

from typing import assert_never

from sparewatt.core.errors import SparewattError
from sparewatt.sim.servers.facts import ModelShape, ServerKind, ServerTruth
from sparewatt.testing.engine.replies import Json, error_body, error_object
from sparewatt.testing.engine.settings import (
    EngineContextTooLong,
    EngineDialect,
    EngineModelNotFound,
    EngineSettings,
)

_FASTAPI_TYPES = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}
_LLAMA_TYPES = {
    400: "invalid_request_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
_NO_LLAMA_METRICS = (
    b'{"error":{"code":501,"message":"This server does not support metrics endpoint. Start it with `--metrics`",'
    b'"type":"not_supported_error"}}'
)


def error_in(dialect: EngineDialect, error: SparewattError) -> Json:
    """The body that the server gives with `error.status`."""
    message = _message(dialect, error)
    match dialect:
        case "sparewatt" if not isinstance(error, EngineContextTooLong):
            return error_body(error)
        case "vllm":
            return {"error": _fastapi_error(error, message)}
        case "sglang":
            return {"object": "error", **_fastapi_error(error, message)}
        case "llama.cpp" | "sparewatt":  # no server says an overflow as a client needs it
            return {"error": _llama_error(error, message)}
        case "ollama":
            kinds = {400: "invalid_request_error", 404: "not_found_error"}
            return error_object(message, kinds.get(error.status, "api_error"))
        case _:
            assert_never(dialect)


def missing_page(dialect: EngineDialect, path: str) -> tuple[int, bytes]:
    """Status and body for a path that the server does not have."""
    match dialect:
        case "vllm" | "sglang":
            return 404, b'{"detail":"Not Found"}'
        case "ollama":
            return 404, b"404 page not found"
        case "llama.cpp" if path == "/metrics":
            return 501, _NO_LLAMA_METRICS
        case "llama.cpp" | "sparewatt":
            return 404, b'{"error":{"message":"File Not Found","type":"not_found_error","code":404}}'
        case _:
            assert_never(dialect)


def server_facts(settings: EngineSettings, *, kind: ServerKind, started_at: int) -> ServerTruth:
    """The engine as a server of this kind would describe itself."""
    seqs = settings.max_num_seqs if settings.engine_kind == "batching" else settings.slots
    has_slots = settings.engine_kind != "batching"
    shape = ModelShape(context_length=settings.n_ctx)
    return ServerTruth(
        kind=kind,
        model=settings.models[0],
        context_length=settings.n_ctx,
        slots=seqs,
        kv_tokens=seqs * settings.n_ctx if has_slots else settings.kv_tokens,
        weights_bytes=settings.weights_bytes,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        parameters=settings.n_params,
        quantization=settings.quantization,
        prefix_cache=settings.prefix_cache_tokens > 0,
        chunk_tokens=settings.chunk_tokens,
        has_metrics=settings.metrics,
        tools="tools" in settings.capabilities,
        started_at=started_at,
        shape=shape,
    )


def _fastapi_error(error: SparewattError, message: str) -> Json:
    kind = _FASTAPI_TYPES.get(error.status, "InternalServerError")
    return {"message": message, "type": kind, "param": error.param, "code": error.status}


def _llama_error(error: SparewattError, message: str) -> Json:
    if isinstance(error, EngineContextTooLong):
        sizes = {"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.n_ctx}
        return {"code": 400, "message": message, "type": "exceed_context_size_error", **sizes}
    return {"code": error.status, "message": message, "type": _LLAMA_TYPES.get(error.status, "server_error")}


def _message(dialect: EngineDialect, error: SparewattError) -> str:
    if isinstance(error, EngineContextTooLong):
        return _context_message(dialect, error)
    if isinstance(error, EngineModelNotFound) and dialect != "sparewatt":
        return f"The model `{error.model}` does not exist." if dialect == "vllm" else f"model '{error.model}' not found"
    return error.message


def _context_message(dialect: EngineDialect, error: EngineContextTooLong) -> str:
    prompt, n_ctx, wanted = error.prompt_tokens, error.n_ctx, error.max_tokens
    match dialect:
        case "vllm":
            return (
                f"This model's maximum context length is {n_ctx} tokens. However, you requested {wanted} output tokens "
                f"and your prompt contains {prompt} input tokens, for a total of {prompt + wanted} tokens. "
                "Please reduce the length of the input prompt or the number of requested output tokens."
            )
        case "sglang" if prompt >= n_ctx:
            return f"The input ({prompt} tokens) is longer than the model's context length ({n_ctx} tokens)."
        case "sglang":
            return (
                f"Requested token count exceeds the model's maximum context length of {n_ctx} tokens. You requested a "
                f"total of {prompt + wanted} tokens: {prompt} tokens from the input messages and {wanted} tokens for "
                "the completion. Please reduce the number of tokens in the input messages or the completion to fit "
                "within the limit."
            )
        case "llama.cpp" | "ollama" | "sparewatt":
            return f"request ({prompt} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
        case _:
            assert_never(dialect)
