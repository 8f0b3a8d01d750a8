"""GET /v1/models: what can be asked for right now. Read from memory; no node is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from aiohttp import web

from sparewatt.api.endpoint import get
from sparewatt.core.errors import ModelNotFound
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.capabilities import assumed
from sparewatt.inference.matcher.explain import nearest_models
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.api.models import Model, ModelList, ModelPricing
from sparewatt.protocol.link.node_report import ModelReport


class ModelEndpoints:
    def __init__(self, *, auth: Authenticator, rows: Iterable[NodeRow], started_unix_s: float) -> None:
        """`rows`: all nodes, whenever it is iterated. `started_unix_s`: when this gateway started."""
        self._auth = auth
        self._rows = rows
        self._started_unix_s = started_unix_s

    @get("/v1/models")
    async def list_models(self, request: web.Request) -> ModelList:
        """List the models that can be asked for right now."""
        await self._auth.authenticate(context_of(request), "inference")
        reports = self._reports_by_model()
        return ModelList(data=[self._describe(model, reports[model]) for model in sorted(reports)])

    @get("/v1/models/{model:.+}")
    async def show_model(self, request: web.Request) -> Model:
        """Show one model."""
        await self._auth.authenticate(context_of(request), "inference")
        wanted = request.match_info["model"]
        reports = self._reports_by_model()
        if wanted not in reports:
            raise ModelNotFound(wanted, nearest=nearest_models(wanted, reports))
        return self._describe(wanted, reports[wanted])

    def _reports_by_model(self) -> dict[str, list[ModelReport]]:
        found: dict[str, list[ModelReport]] = {}
        for row in self._rows:
            for model in row.models.values() if row.connected else ():
                found.setdefault(model.id, []).append(model)
        return found

    def _describe(self, model_id: str, reports: Sequence[ModelReport]) -> Model:
        return Model(
            id=model_id,
            created=int(self._started_unix_s),
            context_length=max((r.context_length for r in reports if r.context_length), default=None),
            capabilities=sorted(set().union(*(assumed(r.capabilities) for r in reports))),
            quantizations=sorted({r.quantization for r in reports if r.quantization}),
            nodes_online=len(reports),
            warm=sum(r.state == "warm" for r in reports),
            pricing=ModelPricing(
                prompt=_usd_per_token(r.prompt_price_nano for r in reports),
                completion=_usd_per_token(r.completion_price_nano for r in reports),
            ),
        )


def _usd_per_token(prices_nano_per_mtok: Iterable[int]) -> str:
    """The lowest price, as a decimal string: nano-USD per million tokens is 1e-15 $ per token."""
    return f"{Decimal(min(prices_nano_per_mtok)).scaleb(-15).normalize():f}"
