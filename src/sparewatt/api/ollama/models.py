"""GET /api/version, /api/tags, /api/ps and POST /api/show: the network's models in Ollama's shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.models.models import ModelEndpoints
from sparewatt.core.errors import InvalidField
from sparewatt.edge.bodies import read_json
from sparewatt.inference.capabilities import assumed
from sparewatt.protocol.api.ollama import (
    OllamaModel,
    OllamaModelDetails,
    OllamaModelInfo,
    OllamaModelList,
    OllamaRunningModel,
    OllamaRunningModelList,
    OllamaShowRequest,
    OllamaVersion,
)
from sparewatt.protocol.link.node_report import Capability, ModelReport
from sparewatt.protocol.ollama.reply import rfc3339
from sparewatt.protocol.ollama.request import model_name

PROTOCOL_VERSION = "0.12.6"
"""Ollama's release whose requests were read for the translation."""
MODELS_SHOWN_MAX = 1_000
"""Ollama's lists have no pages."""
_CAPABILITIES: dict[Capability, str] = {
    "chat": "completion",
    "tools": "tools",
    "vision": "vision",
    "embeddings": "embedding",
}
_ARCHITECTURE = "sparewatt"
"""Before the names of facts about a model, where Ollama has the model's architecture: nodes do not report that."""


@dataclass(slots=True, kw_only=True)
class OllamaModelEndpoints:
    models: ModelEndpoints

    @endpoint("GET /api/version", access="public")
    async def ollama_version(self, _: web.Request) -> OllamaVersion:
        """Show which version of Ollama's protocol is spoken."""
        return OllamaVersion(version=PROTOCOL_VERSION)

    @endpoint("GET /api/tags", access="inference")
    async def ollama_tags(self, _: web.Request, __: Principal) -> OllamaModelList:
        """List the models that can be asked for right now, in Ollama's protocol; those of the most owners first."""
        served = await self.models.reports_by_model()
        names = sorted(served, key=lambda name: (-len(served[name].owners), name))[:MODELS_SHOWN_MAX]
        return OllamaModelList(models=[self._listed(name, served[name].reports) for name in names])

    @endpoint("GET /api/ps", access="inference")
    async def ollama_running(self, _: web.Request, __: Principal) -> OllamaRunningModelList:
        """List the models that nodes have loaded, in Ollama's protocol."""
        served = await self.models.reports_by_model()
        warm = {name: [r for r in each.reports if r.state == "warm"] for name, each in served.items()}
        names = sorted(name for name, reports in warm.items() if reports)[:MODELS_SHOWN_MAX]
        return OllamaRunningModelList(models=[_running(name, warm[name]) for name in names])

    @endpoint("POST /api/show", access="inference", body=OllamaShowRequest)
    async def ollama_show(self, request: web.Request, _: Principal) -> OllamaModelInfo:
        """Show one model, in Ollama's protocol."""
        body = await read_json(request, OllamaShowRequest)
        asked = body.model or body.name
        if asked is None:
            raise InvalidField("The field 'model' is required.", param="model")
        served = (await self.models.find(model_name(asked)))[1]
        context = _context_length(served.reports)
        known = {f"{_ARCHITECTURE}.context_length": context} if context else {}
        can = set().union(*(assumed(report.capabilities) for report in served.reports))
        return OllamaModelInfo(
            modified_at=self._started_at(),
            details=_details(served.reports),
            model_info={"general.architecture": _ARCHITECTURE} | known,
            capabilities=[name for capability, name in _CAPABILITIES.items() if capability in can],
        )

    def _listed(self, name: str, reports: Sequence[ModelReport]) -> OllamaModel:
        return OllamaModel(
            name=name,
            model=name,
            modified_at=self._started_at(),
            size=_size_bytes(reports),
            digest=_digest(reports),
            details=_details(reports),
        )

    def _started_at(self) -> str:
        return rfc3339(self.models.started_unix_s)


def _running(name: str, reports: Sequence[ModelReport]) -> OllamaRunningModel:
    return OllamaRunningModel(
        name=name,
        model=name,
        size=_size_bytes(reports),
        digest=_digest(reports),
        details=_details(reports),
        context_length=_context_length(reports),
    )


def _size_bytes(reports: Sequence[ModelReport]) -> int:
    return max(report.weights_bytes for report in reports)


def _digest(reports: Sequence[ModelReport]) -> str:
    digests = {report.weights_digest for report in reports if report.weights_digest}
    return digests.pop().removeprefix("sha256:") if len(digests) == 1 else ""


def _details(reports: Sequence[ModelReport]) -> OllamaModelDetails:
    quantizations = sorted(report.quantization for report in reports if report.quantization)
    return OllamaModelDetails(quantization_level=quantizations[0] if quantizations else "")


def _context_length(reports: Sequence[ModelReport]) -> int:
    """The longest of all nodes; 0 if no node reports it."""
    return max((report.context_length for report in reports if report.context_length), default=0)
