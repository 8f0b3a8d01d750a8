"""/v1/model-aliases: what else models are called, by the operator's word."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.edge.bodies import read_json
from sparewatt.inference.fleet.alias_service import AliasService
from sparewatt.protocol.api.models import ModelAlias, ModelAliasList, NewModelAlias
from sparewatt.store.model_aliases import StoredAlias


@dataclass(slots=True, kw_only=True)
class ModelAliasEndpoints:
    aliases: AliasService

    @endpoint("GET /v1/model-aliases", access="operator")
    async def list_aliases(self, _: web.Request, __: Principal) -> ModelAliasList:
        """List the operators' aliases of models."""
        return ModelAliasList(data=[_describe(alias) for alias in await self.aliases.reload()])

    @endpoint("POST /v1/model-aliases", access="operator", body=NewModelAlias, status=201)
    async def put_alias(self, request: web.Request, _: Principal) -> ModelAlias:
        """Let an id of a server, or a weights digest, mean a model; one that exists is changed."""
        body = await read_json(request, NewModelAlias)
        return _describe(await self.aliases.put(body.name, body.target))

    @endpoint("DELETE /v1/model-aliases/{name:.+}", access="operator")
    async def drop_alias(self, request: web.Request, _: Principal) -> ModelAlias:
        """Remove an alias."""
        return _describe(await self.aliases.drop(request.match_info["name"]))


def _describe(alias: StoredAlias) -> ModelAlias:
    return ModelAlias(name=alias.name, target=alias.target, created_at=alias.created_unix_s)
