"""GET /v1/models: what can be requested right now. Read from memory; no node is contacted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.core.errors import ModelNotFound
from sparewatt.inference.capabilities import assumed
from sparewatt.inference.fleet.model_catalog import ModelCatalog, base_name
from sparewatt.inference.matcher.explain import nearest_models
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.api.models import Model, ModelList, ModelPricing
from sparewatt.protocol.link.node_report import ModelReport


@dataclass(slots=True, kw_only=True)
class ModelEndpoints:
    rows: Iterable[NodeRow]
    """All nodes, whenever it is iterated."""
    catalog: ModelCatalog
    started_unix_s: float
    """When this gateway started."""

    @endpoint("GET /v1/models", access="inference")
    async def list_models(self, _: web.Request, __: Principal) -> ModelList:
        """List the models that can be asked for right now."""
        reports = self._reports_by_model()
        return ModelList(data=[self._describe(model, reports[model]) for model in sorted(reports)])

    @endpoint("GET /v1/models/{model:.+}", access="inference")
    async def show_model(self, request: web.Request, _: Principal) -> Model:
        """Show one model."""
        asked, reports = request.match_info["model"], self._reports_by_model()
        model = self.catalog.resolve(asked, is_served=reports.__contains__).name
        if model not in reports:
            raise ModelNotFound(model, nearest=nearest_models(model, reports))
        return self._describe(model, reports[model])

    def _reports_by_model(self) -> dict[str, list[ModelReport]]:
        """Of connected nodes. A second quantization on a node counts with the first."""
        reports: dict[str, list[ModelReport]] = {}
        for row in self.rows:
            for model in row.models.values() if row.connected else ():
                reports.setdefault(base_name(model.id, row.models), []).append(model)
        return reports

    def _describe(self, model_id: str, reports: Sequence[ModelReport]) -> Model:
        first = [report for report in reports if report.id == model_id]
        return Model(
            id=model_id,
            created=int(self.started_unix_s),
            context_length=max((r.context_length for r in reports if r.context_length), default=None),
            capabilities=sorted(set().union(*(assumed(r.capabilities) for r in reports))),
            aliases=self.catalog.aliases_of(model_id),
            quantizations=sorted({r.quantization for r in reports if r.quantization}),
            nodes_online=len(first),
            warm=sum(r.state == "warm" for r in first),
            pricing=ModelPricing(
                prompt=_usd_per_token(r.prompt_price_nano for r in reports),
                completion=_usd_per_token(r.completion_price_nano for r in reports),
            ),
        )


def _usd_per_token(prices_nano_per_mtok: Iterable[int]) -> str:
    """The lowest price, as a decimal string: nano-USD per million tokens is 1e-15 $ per token."""
    return f"{Decimal(min(prices_nano_per_mtok)).scaleb(-15).normalize():f}"
