"""llama.cpp's own server. It tells its slots, its template and what that template can do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from sparewatt.node.backends.backend import BackendError, BackendLoad, BackendModel, BackendTotals
from sparewatt.node.backends.http_client import BackendHttpClient
from sparewatt.node.backends.openai import OpenAIBackend, OpenAIModelList
from sparewatt.node.backends.prometheus_page import PrometheusPage
from sparewatt.protocol.link.node_report import Capability

ALWAYS: tuple[Capability, ...] = ("chat", "completions", "json_schema", "logprobs")


class _TemplateCaps(msgspec.Struct, frozen=True):
    supports_tools: bool | None = None
    supports_tool_calls: bool | None = None


class _Modalities(msgspec.Struct, frozen=True):
    vision: bool = False


class _Props(msgspec.Struct, frozen=True):
    default_generation_settings: dict[str, Any]
    chat_template_caps: _TemplateCaps = _TemplateCaps()
    modalities: _Modalities = _Modalities()
    endpoint_metrics: bool = False


class LlamaCppBackend(OpenAIBackend):
    kind: ClassVar[str] = "llama.cpp"
    capabilities_to_probe = ("embeddings",)  # only if it was started for them, and it does not say so

    @staticmethod
    async def recognises(server: BackendHttpClient) -> bool:
        try:
            await server.read("/props", _Props)
        except BackendError:
            pass
        else:
            return True
        try:  # while it loads it has no properties, but already lists its model
            listed = await server.read("/v1/models", OpenAIModelList)
        except BackendError:
            return False
        return any(model.owned_by == "llamacpp" for model in listed.data)

    async def models(self) -> list[BackendModel]:
        models = await super().models()
        try:
            props = await self.read("/props", _Props)
        except BackendError:  # it loads
            return models
        capabilities = _capabilities(props)
        return [model if model.capabilities_complete else replace(model, capabilities=capabilities) for model in models]

    async def load(self) -> BackendLoad | None:
        """Slots tell what runs. What waits, and how full the memory is, only `--metrics` tells."""
        load = await super().load()
        if load is None:
            return None
        try:
            page = PrometheusPage(await self.get("/metrics"))
        except BackendError:
            return load
        return replace(
            load,
            queued=page.count("llamacpp:requests_deferred") or 0,
            kv_used=page.share("llamacpp:kv_cache_usage_ratio"),
            totals=BackendTotals(
                prompt_tokens=page.total("llamacpp:prompt_tokens_total"),
                generation_tokens=page.total("llamacpp:tokens_predicted_total"),
            ),
        )


def _capabilities(props: _Props) -> tuple[Capability, ...]:
    caps = props.chat_template_caps
    has_tools = caps.supports_tools if caps.supports_tools is not None else caps.supports_tool_calls
    may: dict[Capability, bool] = {"tools": bool(has_tools), "vision": props.modalities.vision}
    return (*ALWAYS, *(each for each, has_it in may.items() if has_it))
