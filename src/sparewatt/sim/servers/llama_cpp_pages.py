"""The pages of llama.cpp's server, as the one in the xllamacpp wheel gives them (a contract test compares the names).

`/metrics` exists only with `--metrics`. There is no figure for the KV cache beyond the context of each slot.
"""

from __future__ import annotations

import msgspec

from sparewatt.sim.servers.facts import ServerLoad, ServerTruth, SlotLoad
from sparewatt.sim.servers.prometheus_text import MetricsText

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_NO_DETAILS = {"parent_model": "", "format": "gguf", "family": "", "families": [""]}


def static_pages(facts: ServerTruth) -> dict[str, bytes]:
    models = msgspec.json.encode(_models(facts))
    return {
        "/health": b'{"status":"ok"}',
        "/v1/models": models,
        "/models": models,
        "/props": msgspec.json.encode(_props(facts)),
    }


def _models(facts: ServerTruth) -> dict[str, object]:
    listed = {
        "name": facts.model,
        "model": facts.model,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": _NO_DETAILS | {"parameter_size": "", "quantization_level": ""},
    }
    card = {
        "id": facts.model,
        "aliases": [facts.model],
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": facts.started_at,
        "owned_by": "llamacpp",
        "meta": {
            "vocab_type": 2,
            "n_vocab": facts.shape.vocabulary,
            "n_ctx": facts.context_length,
            "n_ctx_train": facts.shape.context_length,
            "n_embd": facts.shape.embedding,
            "n_params": facts.parameters,
            "size": facts.weights_bytes,
            "ftype": facts.quantization or "F16",
        },
    }
    return {"models": [listed], "object": "list", "data": [card]}


def _props(facts: ServerTruth) -> dict[str, object]:
    caps = {
        "supports_object_arguments": False,
        "supports_parallel_tool_calls": False,
        "supports_preserve_reasoning": False,
        "supports_reasoning_effort": False,
        "supports_string_content": True,
        "supports_system_role": True,
        "supports_tool_calls": facts.tools,
        "supports_tools": facts.tools,
        "supports_typed_content": False,
    }
    return {
        "default_generation_settings": {
            "params": {"temperature": 0.8, "max_tokens": -1},
            "n_ctx": facts.context_length,
        },
        "total_slots": facts.slots,
        "model_alias": facts.model,
        "model_ftype": facts.quantization or "F16",
        "model_path": f"/models/{facts.model}.gguf",
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": "<__media__>",
        "endpoint_slots": True,
        "endpoint_props": True,
        "endpoint_metrics": facts.has_metrics,
        "ui": False,
        "ui_settings": {},
        "chat_template": CHAT_TEMPLATE,
        "chat_template_caps": caps,
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "build_info": "b0-unknown",
        "is_sleeping": False,
        "cors_proxy_enabled": False,
    }


def live_pages(facts: ServerTruth, load: ServerLoad) -> dict[str, bytes]:
    pages = {"/slots": msgspec.json.encode([_slot(facts, load, number) for number in range(facts.slots)])}
    return pages | ({"/metrics": _metrics(load)} if facts.has_metrics else {})


def _slot(facts: ServerTruth, load: ServerLoad, number: int) -> dict[str, object]:
    """A slot that was never used has the first four fields only."""
    slot = load.slots[number] if number < len(load.slots) else None
    is_busy = slot is not None if load.slots else number < load.running
    page: dict[str, object] = {
        "id": number,
        "n_ctx": facts.context_length,
        "speculative": False,
        "is_processing": is_busy,
    }
    return page | (_progress(slot) if slot is not None else {})


def _progress(slot: SlotLoad) -> dict[str, object]:
    return {
        "n_prompt_tokens": slot.prompt_tokens + slot.written_tokens,
        "n_prompt_tokens_processed": slot.read_tokens,
        "n_prompt_tokens_cache": slot.cached_tokens,
        "next_token": [
            {"has_next_token": True, "has_new_line": False, "n_remain": -1, "n_decoded": slot.written_tokens}
        ],
    }


def _metrics(load: ServerLoad) -> bytes:
    totals, page = load.totals, MetricsText(prefix="llamacpp")
    page.counter(
        "prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens", totals.prompt_tokens
    )
    page.counter("prompt_tokens_cached_total", "Number of prompt tokens reused from the cache", totals.cached_tokens)
    page.counter("prompt_seconds_total", "Total time spent processing prompts", totals.prompt_s)
    page.counter("tokens_predicted_total", "Number of generation tokens processed", totals.generation_tokens)
    page.counter("tokens_predicted_seconds_total", "Total time spent generating tokens", totals.decode_s)
    page.counter("n_decode_total", "Total number of llama_decode() calls", totals.iterations)
    page.counter("n_tokens_max", "Largest observed sequence length (prompt + generation)", totals.longest_tokens)
    for name in ("num_draft_tokens", "num_accepted_tokens", "num_drafts"):
        page.counter(f"spec_decode_{name}_total", "Speculative decoding, which is off", 0)
    page.gauge(
        "prompt_tokens_seconds", "Average prompt throughput in tokens/s", _rate(totals.prompt_tokens, totals.prompt_s)
    )
    page.gauge(
        "predicted_tokens_seconds",
        "Average generation throughput in tokens/s",
        _rate(totals.generation_tokens, totals.decode_s),
    )
    page.gauge("requests_processing", "Number of requests processing", load.running)
    page.gauge("requests_deferred", "Number of requests deferred", load.waiting)
    page.gauge(
        "n_busy_slots_per_decode",
        "Average number of busy slots per llama_decode() call",
        _rate(totals.busy_slots, totals.iterations),
    )
    return page.encode()


def _rate(amount: float, time: float) -> float:
    return amount / time if time > 0 else 0.0
