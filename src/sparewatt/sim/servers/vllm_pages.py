"""The pages of vLLM 0.28 (vllm/v1/metrics/loggers.py, vllm/config/cache.py, entrypoints/openai/engine/protocol.py).

They have neither the weights, nor the bytes of a token in the KV cache, nor `max_num_seqs`.
"""

from __future__ import annotations

import msgspec

from sparewatt.sim.servers.facts import BLOCK_TOKENS, ServerLoad, ServerTruth
from sparewatt.sim.servers.prometheus_text import MetricsText

VERSION = "0.28.0"
_PERMISSION = {
    "id": "modelperm-0",
    "object": "model_permission",
    "allow_create_engine": False,
    "allow_sampling": True,
    "allow_logprobs": True,
    "allow_search_indices": False,
    "allow_view": True,
    "allow_fine_tuning": False,
    "organization": "*",
    "group": None,
    "is_blocking": False,
}


def static_pages(facts: ServerTruth) -> dict[str, bytes]:
    card = {
        "id": facts.model,
        "object": "model",
        "created": facts.started_at,
        "owned_by": "vllm",
        "root": facts.model,
        "parent": None,
        "max_model_len": facts.context_length,
        "permission": [_PERMISSION | {"created": facts.started_at}],
    }
    return {
        "/health": b"",
        "/version": msgspec.json.encode({"version": VERSION}),
        "/v1/models": msgspec.json.encode({"object": "list", "data": [card]}),
    }


def live_pages(facts: ServerTruth, load: ServerLoad) -> dict[str, bytes]:
    totals = load.totals
    page = MetricsText(prefix="vllm", labels={"model_name": facts.model, "engine": "0"})
    page.gauge("num_requests_running", "Number of requests in model execution batches.", load.running)
    page.gauge("num_requests_waiting", "Number of requests waiting to be processed.", load.waiting)
    page.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", load.kv_used_share)
    asked = totals.prompt_tokens + totals.cached_tokens if facts.prefix_cache else 0
    page.counter("prefix_cache_queries_total", "Prefix cache queries, in number of queried tokens.", asked)
    page.counter("prefix_cache_hits_total", "Prefix cache hits, in number of cached tokens.", totals.cached_tokens)
    page.counter("num_preemptions_total", "Cumulative number of preemption from the engine.", totals.preemptions)
    page.counter(
        "prompt_tokens_total", "Number of prefill tokens processed.", totals.prompt_tokens + totals.cached_tokens
    )
    page.counter("prompt_tokens_cached_total", "Number of cached prompt tokens.", totals.cached_tokens)
    page.counter("generation_tokens_total", "Number of generation tokens processed.", totals.generation_tokens)
    page.histogram(
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        total=totals.first_token_s,
        count=totals.first_tokens,
    )
    page.histogram(
        "e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        total=totals.request_s,
        count=totals.requests,
    )
    return {"/metrics": page.encode() + _cache_config(facts)}


def _cache_config(facts: ServerTruth) -> bytes:
    page = MetricsText(prefix="vllm")
    blocks = facts.kv_tokens // BLOCK_TOKENS
    labels = {
        "block_size": str(BLOCK_TOKENS),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(facts.prefix_cache),
        "engine": "0",
        "gpu_memory_utilization": "0.92",
        "is_attention_free": "False",
        "kv_cache_max_concurrency": str(blocks * BLOCK_TOKENS / facts.context_length),
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": str(blocks * BLOCK_TOKENS),
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(blocks),
        "num_gpu_blocks_override": "None",
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": "None",
    }
    page.gauge("cache_config_info", "Information of the LLMEngine CacheConfig", 1.0, labels=labels)
    return page.encode()
