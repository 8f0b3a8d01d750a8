"""GET /v1/models: what can be asked for right now. Read from memory; no node is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from aiohttp import web

from sparewatt.core.errors import ModelNotFound
from sparewatt.gateway.http import authenticate, json_reply, listing
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.capabilities import believed
from sparewatt.inference.matcher.explain import nearest_models
from sparewatt.protocol.node import ModelReport


async def list_models(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    await authenticate(request, "inference")
    reports = _reports_by_model(services)
    return json_reply(listing([_describe(m, reports[m], services) for m in sorted(reports)]))


async def show_model(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    await authenticate(request, "inference")
    wanted = request.match_info["model"]
    reports = _reports_by_model(services)
    if wanted not in reports:
        raise ModelNotFound(wanted, nearest=nearest_models(wanted, reports))
    return json_reply(_describe(wanted, reports[wanted], services))


def _reports_by_model(services: Services) -> dict[str, list[ModelReport]]:
    found: dict[str, list[ModelReport]] = {}
    for row in services.table:
        for model in row.models.values() if row.connected else ():
            found.setdefault(model.id, []).append(model)
    return found


def _describe(model_id: str, reports: Sequence[ModelReport], services: Services) -> dict[str, Any]:
    return {
        "id": model_id,
        "object": "model",
        "created": int(services.started_unix_s),
        "owned_by": "sparewatt",
        "context_length": max((r.context_length for r in reports if r.context_length), default=None),
        "capabilities": sorted(set().union(*(believed(r.capabilities) for r in reports))),
        "quantizations": sorted({r.quantization for r in reports if r.quantization}),
        "nodes_online": len(reports),
        "warm": sum(r.state == "warm" for r in reports),
        "pricing": {
            "prompt": _usd_per_token(r.prompt_price_nano for r in reports),
            "completion": _usd_per_token(r.completion_price_nano for r in reports),
        },
    }


def _usd_per_token(prices_nano_per_mtok: Iterable[int]) -> str:
    """The lowest price, as a decimal string: nano-USD per million tokens is 1e-15 $ per token."""
    return f"{Decimal(min(prices_nano_per_mtok)).scaleb(-15).normalize():f}"
