"""GET /v1/network: the whole network in numbers. Public: by region, class of GPU and model; no node by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from statistics import median

from aiohttp import web

from sparewatt.accounts.account_service import SignupMode
from sparewatt.accounts.public_rate_limits import PublicRateLimiter
from sparewatt.api.endpoint import endpoint
from sparewatt.api.paging import PAGE_MAX, take_turns
from sparewatt.core.clock import Clock
from sparewatt.core.money import format_usd
from sparewatt.edge.middleware import context_of
from sparewatt.inference.capabilities import assumed, best_of
from sparewatt.inference.fleet.node_states import NodeStates
from sparewatt.inference.matcher.node_row import NodeRow, NodeState
from sparewatt.protocol.api.feed import NetworkTotals, NodeStateName
from sparewatt.protocol.api.network import GpuClassSummary, NetworkModel, NetworkOverview, PriceRange, RegionNodes
from sparewatt.protocol.link.node_report import ModelReport
from sparewatt.telemetry.feed.places import public_region
from sparewatt.telemetry.feed.public import class_of, digits, vram_gb_of

PRICE_DIGITS = 3
"""Significant digits of a price. All nine would identify a node where few serve a model."""


@dataclass(slots=True, kw_only=True)
class NetworkEndpoints:
    states: NodeStates
    totals: Callable[[], NetworkTotals]
    public_limiter: PublicRateLimiter
    """By address, for endpoints without a login."""
    clock: Clock
    signup_mode: SignupMode
    has_billing: bool
    has_chain: bool
    is_development: bool

    @endpoint("GET /v1/network", access="public")
    async def show_network(self, request: web.Request) -> NetworkOverview:
        """Show the network in numbers: totals, regions, classes of GPU, models."""
        self.public_limiter.admit(address=context_of(request).address)
        states = self.states.all()
        present = [row for row, state in states if state is not NodeState.OFFLINE]
        return NetworkOverview(
            at=self.clock.unix_s(),
            signup=self.signup_mode,
            billing=self.has_billing,
            chain=self.has_chain,
            development=self.is_development,
            totals=self.totals(),
            regions=_regions(states),
            classes=_classes(present),
            models=await _models(present),
        )


def _regions(states: Sequence[tuple[NodeRow, NodeState]]) -> list[RegionNodes]:
    by_region: dict[str, Counter[NodeStateName]] = {}
    for row, state in states:
        by_region.setdefault(public_region(row.specs.region), Counter())[state.value] += 1
    return [RegionNodes(region=region, nodes=by_region[region]) for region in sorted(by_region)]


def _classes(rows: Sequence[NodeRow]) -> list[GpuClassSummary]:
    by_class: dict[str, list[NodeRow]] = {}
    for row in rows:
        by_class.setdefault(class_of(row), []).append(row)
    return [
        GpuClassSummary(
            name=name,
            nodes=len(members),
            gpus=sum(row.specs.gpu_count for row in members),
            vram_gb=sum(map(vram_gb_of, members)),
            hourly_usd_median=_usd(median(row.specs.hourly_price_nano for row in members)),
        )
        for name, members in sorted(by_class.items())
    ]


async def _models(rows: Sequence[NodeRow]) -> list[NetworkModel]:
    by_model: dict[str, list[ModelReport]] = {}

    def visit(row: NodeRow) -> int:
        for model in row.models.values():
            by_model.setdefault(model.id, []).append(model)
        return 1 + len(row.models)

    await take_turns(rows, visit)
    shown = nsmallest(PAGE_MAX, by_model, key=lambda model_id: (-len(by_model[model_id]), model_id))
    return [_model_of(model_id, by_model[model_id]) for model_id in sorted(shown)]


def _model_of(model_id: str, reports: Sequence[ModelReport]) -> NetworkModel:
    return NetworkModel(
        id=model_id,
        nodes=len(reports),
        warm=sum(report.state == "warm" for report in reports),
        measured=sum(report.measured is not None for report in reports),
        quantizations=sorted({report.quantization for report in reports if report.quantization}),
        context_length=max((report.context_length or 0 for report in reports), default=0) or None,
        capabilities=best_of(assumed(report.capabilities) for report in reports),
        prompt_usd_per_mtok=_price_range([report.prompt_price_nano for report in reports]),
        completion_usd_per_mtok=_price_range([report.completion_price_nano for report in reports]),
    )


def _price_range(nanos: Sequence[int]) -> PriceRange:
    return PriceRange(low=_usd(min(nanos)), median=_usd(median(nanos)), high=_usd(max(nanos)))


def _usd(nano: float) -> str:
    return format_usd(round(digits(nano, PRICE_DIGITS)))
