"""GET /v1/network: the whole network in numbers, for everybody. By region, class of GPU and model; no node by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from aiohttp import web

from sparewatt.core.money import format_usd
from sparewatt.gateway.feeds.places import public_region
from sparewatt.gateway.feeds.public import class_of, digits, vram_gb_of
from sparewatt.gateway.http import address_of, json_reply
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.matcher.model import NodeRow, NodeState
from sparewatt.protocol.node import ModelReport

PRICE_DIGITS = 3
"""Of a price. All nine would tell a node apart where few serve a model."""


async def show_network(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    services.doors.published.knock(address=address_of(request))
    return json_reply(describe_network(services))


def describe_network(services: Services) -> dict[str, Any]:
    states = [(row, services.state_of(row)) for row in services.table]
    there = [row for row, state in states if state is not NodeState.OFFLINE]
    return {
        "object": "network",
        "at": services.clock.unix_s(),
        "signup": services.settings.signup_mode,
        "billing": services.settings.billing,
        "development": services.settings.development,
        "totals": services.live.totals(),
        "regions": _regions(states),
        "classes": _classes(there),
        "models": _models(there),
    }


def _regions(states: Sequence[tuple[NodeRow, NodeState]]) -> list[dict[str, Any]]:
    by_region: dict[str, Counter[str]] = {}
    for row, state in states:
        by_region.setdefault(public_region(row.specs.region), Counter())[state.value] += 1
    return [{"region": region, "nodes": by_region[region]} for region in sorted(by_region)]


def _classes(rows: Sequence[NodeRow]) -> list[dict[str, Any]]:
    """With the median price per hour of each."""
    by_class: dict[str, list[NodeRow]] = {}
    for row in rows:
        by_class.setdefault(class_of(row), []).append(row)
    return [
        {
            "class": name,
            "nodes": len(found),
            "gpus": sum(row.specs.gpu_count for row in found),
            "vram_gb": sum(map(vram_gb_of, found)),
            "hourly_usd_median": _usd(median(row.specs.hourly_price_nano for row in found)),
        }
        for name, found in sorted(by_class.items())
    ]


def _models(rows: Sequence[NodeRow]) -> list[dict[str, Any]]:
    by_model: dict[str, list[ModelReport]] = {}
    for row in rows:
        for model in row.models.values():
            by_model.setdefault(model.id, []).append(model)
    return [_describe_model(name, by_model[name]) for name in sorted(by_model)]


def _describe_model(name: str, reports: Sequence[ModelReport]) -> dict[str, Any]:
    return {
        "id": name,
        "nodes": len(reports),
        "warm": sum(report.state == "warm" for report in reports),
        "measured": sum(report.measured is not None for report in reports),
        "quantizations": sorted({report.quantization for report in reports if report.quantization}),
        "context_length": max((report.context_length or 0 for report in reports), default=0) or None,
        "prompt_usd_per_mtok": _price([report.prompt_price_nano for report in reports]),
        "completion_usd_per_mtok": _price([report.completion_price_nano for report in reports]),
    }


def _price(nanos: Sequence[int]) -> dict[str, str]:
    return {"low": _usd(min(nanos)), "median": _usd(median(nanos)), "high": _usd(max(nanos))}


def _usd(nano: float) -> str:
    return format_usd(round(digits(nano, PRICE_DIGITS)))
