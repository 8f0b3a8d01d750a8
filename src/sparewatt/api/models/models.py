"""GET /v1/models: what can be requested right now. Read from memory; no node is contacted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.paging import PAGE_QUERY, PageSelection, read_cursor, read_limit, take_turns, write_cursor
from sparewatt.core.errors import ModelNotFound
from sparewatt.core.ids import AccountId
from sparewatt.edge.bodies import whole_number
from sparewatt.inference.capabilities import assumed, best_of
from sparewatt.inference.fleet.model_catalog import ModelCatalog, base_name
from sparewatt.inference.matcher.explain import nearest_models
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.api.messages import AnthropicModel, AnthropicModelList
from sparewatt.protocol.api.models import Model, ModelList, ModelPricing
from sparewatt.protocol.error_shapes import ANTHROPIC_VERSION
from sparewatt.protocol.link.node_report import ModelReport


class ModelKey(NamedTuple):
    """Models of many owners first: whoever makes up names cannot push them off the first page."""

    minus_owners: int
    id: str


class ServedModel(NamedTuple):
    reports: list[ModelReport]
    owners: set[AccountId | None]


@dataclass(slots=True, kw_only=True)
class ModelEndpoints:
    rows: Iterable[NodeRow]
    """All nodes, whenever it is iterated."""
    catalog: ModelCatalog
    started_unix_s: float
    """When this gateway started."""

    @endpoint("GET /v1/models", access="inference", query=PAGE_QUERY)
    async def list_models(self, request: web.Request, _: Principal) -> ModelList | AnthropicModelList:
        """List the models that can be asked for right now, 200 to a page, those of the most owners first."""
        if ANTHROPIC_VERSION in request.headers:
            return await self._anthropic_page(request)
        limit = read_limit(request)
        page: PageSelection[ModelKey, str] = PageSelection(after=read_cursor(request, ModelKey), limit=limit)
        reports = await self.reports_by_model()
        for model, found in reports.items():
            page.add(ModelKey(-len(found.owners), model), model)
        shown = page.items()
        following = write_cursor(shown[limit - 1][0]) if len(shown) > limit else None
        data = [self._describe(model, reports[model].reports) for _, model in shown[:limit]]
        return ModelList(data=data, next=following)

    @endpoint("GET /v1/models/{model:.+}", access="inference")
    async def show_model(self, request: web.Request, _: Principal) -> Model | AnthropicModel:
        """Show one model."""
        asked = request.match_info["model"]
        model, served = await self.find(asked)
        described = self._describe(model, served.reports)
        return _as_anthropic(described, name=asked) if ANTHROPIC_VERSION in request.headers else described

    async def _anthropic_page(self, request: web.Request) -> AnthropicModelList:
        """By name, since its clients continue after a name."""
        limit, after = whole_number(request, "limit", default=20, most=1_000), request.query.get("after_id", "")
        reports = await self.reports_by_model()
        names = sorted(name for name in reports if name > after)
        data = [_as_anthropic(self._describe(name, reports[name].reports)) for name in names[:limit]]
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        return AnthropicModelList(data=data, first_id=first, last_id=last, has_more=len(names) > limit)

    async def find(self, asked: str) -> tuple[str, ServedModel]:
        """The network's name of a model, and who serves it. Raises ModelNotFound."""
        reports = await self.reports_by_model()
        model = self.catalog.resolve(asked, is_served=reports.__contains__).name
        if model not in reports:
            raise ModelNotFound(model, nearest=nearest_models(model, reports))
        return model, reports[model]

    async def reports_by_model(self) -> dict[str, ServedModel]:
        """Of connected nodes. A second quantization on a node counts with the first."""
        found: dict[str, ServedModel] = {}

        def visit(row: NodeRow) -> int:
            for model in row.models.values() if row.connected else ():
                served = found.setdefault(base_name(model.id, row.models), ServedModel([], set()))
                served.reports.append(model)
                served.owners.add(row.owner)
            return 1 + len(row.models)

        await take_turns(list(self.rows), visit)
        return found

    def _describe(self, model_id: str, reports: Sequence[ModelReport]) -> Model:
        first = [report for report in reports if report.id == model_id]
        return Model(
            id=model_id,
            created=int(self.started_unix_s),
            context_length=max((r.context_length for r in reports if r.context_length), default=None),
            capabilities=best_of(assumed(r.capabilities) for r in reports),
            aliases=self.catalog.aliases_of(model_id),
            quantizations=sorted({r.quantization for r in reports if r.quantization}),
            nodes_online=len(first),
            warm=sum(r.state == "warm" for r in first),
            pricing=ModelPricing(
                prompt=_usd_per_token(r.prompt_price_nano for r in reports),
                completion=_usd_per_token(r.completion_price_nano for r in reports),
            ),
        )


def _as_anthropic(model: Model, *, name: str | None = None) -> AnthropicModel:
    """`name`: that by which it was asked for, if that is another."""
    created_at = dt.datetime.fromtimestamp(model.created, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return AnthropicModel(
        id=name or model.id, display_name=model.id, created_at=created_at, max_input_tokens=model.context_length
    )


def _usd_per_token(prices_nano_per_mtok: Iterable[int]) -> str:
    """The lowest price, as a decimal string: nano-USD per million tokens is 1e-15 $ per token."""
    return f"{Decimal(min(prices_nano_per_mtok)).scaleb(-15).normalize():f}"
