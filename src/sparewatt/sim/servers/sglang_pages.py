"""The pages of SGLang 0.5.18 (srt/entrypoints/http_server.py, srt/managers/scheduler.py, srt/observability).

`/metrics` exists only with `--enable-metrics`. Memory is in GiB, rounded to three digits, though it is named GB.
"""

from __future__ import annotations

import msgspec

from sparewatt.sim.servers.facts import ServerLoad, ServerTruth
from sparewatt.sim.servers.prometheus_text import MetricsText

VERSION = "0.5.18"
GIB = 1 << 30
RESERVED_TOKENS = 6
"""Of the KV cache, that no request may fill."""


def static_pages(facts: ServerTruth) -> dict[str, bytes]:
    card = {
        "id": facts.model,
        "object": "model",
        "created": facts.started_at,
        "owned_by": "sglang",
        "root": facts.model,
        "parent": None,
        "max_model_len": facts.context_length,
    }
    model_info = msgspec.json.encode(_model_info(facts))
    server_info = msgspec.json.encode(_server_info(facts))
    return {
        "/health": b"",
        "/v1/models": msgspec.json.encode({"object": "list", "data": [card]}),
        "/model_info": model_info,
        "/get_model_info": model_info,
        "/server_info": server_info,
        "/get_server_info": server_info,
    }


def _model_info(facts: ServerTruth) -> dict[str, object]:
    return {
        "model_path": facts.model,
        "served_model_name": facts.model,
        "tokenizer_path": facts.model,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": facts.shape.architecture if facts.tools else None,
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": facts.shape.architecture,
        "architectures": [f"{facts.shape.architecture.capitalize()}ForCausalLM"],
    }


def _server_info(facts: ServerTruth) -> dict[str, object]:
    started_with = {
        "model_path": facts.model,
        "served_model_name": facts.model,
        "dtype": "auto",
        "quantization": facts.quantization,
        "kv_cache_dtype": "auto",
        "context_length": None,
        "max_running_requests": None,
        "max_total_tokens": None,
        "chunked_prefill_size": facts.chunk_tokens,
        "page_size": 1,
        "disable_radix_cache": not facts.prefix_cache,
        "enable_metrics": facts.has_metrics,
        "tool_call_parser": facts.shape.architecture if facts.tools else None,
        "reasoning_parser": None,
    }
    memory: dict[str, object] = {
        "weight": round(facts.weights_bytes / GIB, 3),
        "kvcache": round(facts.kv_tokens * facts.kv_bytes_per_token / GIB, 3),
        "token_capacity": facts.kv_tokens,
        "token_capacity_swa": None,
        "graph": {},
    }
    state = started_with | {
        "last_gen_throughput": 0.0,
        "memory_usage": memory,
        "effective_max_running_requests_per_dp": facts.slots,
    }
    return started_with | {
        "status": "ready",
        "max_total_num_tokens": facts.kv_tokens,
        "max_req_input_len": max(1, min(facts.context_length, facts.kv_tokens) - RESERVED_TOKENS),
        "internal_states": [state],
        "version": VERSION,
        "kv_events": None,
    }


def live_pages(facts: ServerTruth, load: ServerLoad) -> dict[str, bytes]:
    if not facts.has_metrics:
        return {}
    totals, used = load.totals, round(load.kv_used_share * facts.kv_tokens)
    page = MetricsText(
        prefix="sglang", labels={"engine_type": "unified", "model_name": facts.model, "pp_rank": "0", "tp_rank": "0"}
    )
    streamed = {"is_streaming": "true"}
    page.gauge("num_running_reqs", "The number of running requests.", load.running)
    page.gauge("num_queue_reqs", "The number of requests in the waiting queue.", load.waiting)
    page.gauge("token_usage", "The token usage.", load.kv_used_share)
    page.gauge("full_token_usage", "The token usage for full attention layers.", load.kv_used_share)
    page.gauge("num_used_tokens", "The number of used tokens.", used)
    page.gauge("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", facts.kv_tokens)
    page.gauge("context_len", "Maximum context length.", facts.context_length)
    page.counter("num_retracted_requests_total", "Total number of retracted requests.", totals.preemptions)
    page.counter(
        "prompt_tokens_total",
        "Number of prefill tokens processed.",
        totals.prompt_tokens + totals.cached_tokens,
        labels=streamed,
    )
    page.counter(
        "generation_tokens_total", "Number of generation tokens processed.", totals.generation_tokens, labels=streamed
    )
    page.counter(
        "cached_tokens_total",
        "Number of cached prompt tokens.",
        totals.cached_tokens,
        labels={"cache_source": "device"},
    )
    page.counter("num_requests_total", "Number of requests processed.", totals.requests, labels=streamed)
    page.histogram(
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        total=totals.first_token_s,
        count=totals.first_tokens,
        labels=streamed,
    )
    page.histogram(
        "e2e_request_latency_seconds",
        "Histogram of End-to-end request latency in seconds",
        total=totals.request_s,
        count=totals.requests,
        labels=streamed,
    )
    return {"/metrics": page.encode()}
